#include "mixtape/calib/base_logits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "mixtape/calib/logit_blocks.h"
#include "mixtape/core/counted.h"

namespace mixtape {
namespace {

constexpr char kMagic[] = "_logits_";
constexpr std::size_t kHeadBytes = 8 + 3 * 4;
constexpr double kDepth = 16.0;  // nats below the largest log-probability that codes reach

std::int64_t compared(std::int64_t length) { return length - 1 - length / 2; }
std::int64_t record_bytes(std::int64_t vocab) { return 8 + 2 * ((vocab + 1) / 2 * 2); }

template <class T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  const auto* at = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), at, at + sizeof(T));
}

// Appends one position's record.
void append_record(std::vector<std::byte>& bytes, std::span<const float> logits) {
  const auto [low, high] = std::minmax_element(logits.begin(), logits.end());
  const auto max = static_cast<double>(*high);
  const double min = std::max(static_cast<double>(*low), max - kDepth);
  double sum = 0.0;
  for (const float x : logits) sum += static_cast<double>(std::exp(x - *high));
  require(std::isfinite(sum), "found a logit that is not finite");
  const auto scale = static_cast<float>((max - min) / 65535.0);
  append(bytes, scale);
  append(bytes, static_cast<float>(min - max - std::log(sum)));
  for (const float x : logits) {
    const double above = std::max(0.0, static_cast<double>(x) - min);
    const double code = scale > 0.0f ? above / static_cast<double>(scale) : 0.0;
    append(bytes, static_cast<std::uint16_t>(std::min(65535.0, std::nearbyint(code))));
  }
  if (logits.size() % 2 != 0) append(bytes, std::uint16_t{0});
}

void check_saved(std::span<const TokenRow> rows, std::int64_t batch_size) {
  require(batch_size > 0, "base logits: batch size is ", batch_size, ", expected 1 or more");
  require(!rows.empty(), "base logits: found no row, expected one or more");
  require(rows[0].size() >= 3, "base logits: rows have ", rows[0].size(), " tokens, expected 3 or more");
  for (const TokenRow& row : rows) {
    require(row.size() == rows[0].size(), "base logits: rows have ", rows[0].size(), " and ", row.size(),
            " tokens, expected one length");
  }
}

void write_head(AtomicFile& file, std::span<const TokenRow> rows, std::int64_t vocab) {
  std::vector<std::byte> head;
  for (const char c : std::string(kMagic)) append(head, c);
  append(head, static_cast<std::uint32_t>(rows[0].size()));
  append(head, static_cast<std::int32_t>(vocab));
  append(head, static_cast<std::int32_t>(rows.size()));
  for (const TokenRow& row : rows) {
    for (const std::uint32_t id : row) append(head, static_cast<std::int32_t>(id));
  }
  file.write(head);
}

// Writes the records of one batch; `first_row` is for messages.
void write_batch(AtomicFile& file, const CausalLm& teacher, Tape& tape, const Batch& batch,
                 std::size_t first_row) {
  const std::int64_t length = batch.ids.shape()[1] + 1, per_row = compared(length);
  const Buffer hidden = hidden_rows(teacher, batch.ids, length / 2, tape);
  for_each_logit_block(teacher, hidden.shape()[0], tape.device(), [&](std::int64_t begin, std::int64_t end) {
    const Var logits = teacher.logits(tape.constant(hidden.slice(begin, end)));
    tape.encoder().commit_and_wait();
    const std::vector<float> values = logits.value().to_vector<float>();
    const std::size_t vocab = values.size() / static_cast<std::size_t>(end - begin);
    std::vector<std::byte> records;
    for (std::int64_t i = begin; i < end; ++i) {
      try {
        append_record(records, {&values[static_cast<std::size_t>(i - begin) * vocab], vocab});
      } catch (const Error& error) {
        fail(error.code(), "base logits: row ", first_row + static_cast<std::size_t>(i / per_row),
             ", position ", length / 2 + i % per_row, ": ", error.what());
      }
    }
    file.write(records);
  });
}

}  // namespace

BaseLogits::BaseLogits(const std::filesystem::path& file) : file_(file) { read_head(); }

void BaseLogits::read_head() {
  const std::span<const std::byte> bytes = file_.bytes();
  const std::string name = file_.path().string();
  if (bytes.size() < kHeadBytes || std::memcmp(bytes.data(), kMagic, 8) != 0) {
    fail(ErrorCode::format, name, ": not a file of log-probabilities: expected one that begins with ",
         kMagic);
  }
  const auto length = read<std::uint32_t>(&bytes[8]);
  const auto vocab = read<std::int32_t>(&bytes[12]), rows = read<std::int32_t>(&bytes[16]);
  if (length < 3 || length > (1u << 30) || vocab < 1 || rows < 1) {
    fail(ErrorCode::format, name, ": found ", rows, " rows of ", length, " tokens, vocabulary ", vocab,
         ", expected 1 row or more of 3 tokens or more, vocabulary 1 or more");
  }
  length_ = length;
  vocab_ = vocab;
  const std::uint64_t wanted = base_logits_bytes(rows, length_, vocab_);
  if (bytes.size() != wanted) {
    fail(ErrorCode::format, name, ": found ", bytes.size(), " bytes, expected ", wanted, " for ", rows,
         " rows of ", length_, " tokens, vocabulary ", vocab_,
         bytes.size() < wanted ? "; the file is cut off" : "");
  }
  const std::byte* at = &bytes[kHeadBytes];
  rows_.resize(static_cast<std::size_t>(rows));
  for (TokenRow& row : rows_) {
    for (std::uint32_t i = 0; i < length; ++i, at += 4) row.push_back(read<std::uint32_t>(at));
  }
  try {
    check_ids(rows_, vocab_);
  } catch (const Error& error) {
    fail(ErrorCode::format, name, ": ", error.what());
  }
}

void BaseLogits::begin_rows_with(std::span<const std::uint32_t> prefix) {
  const auto count = static_cast<std::ptrdiff_t>(std::min(prefix.size(), static_cast<std::size_t>(length_)));
  for (TokenRow& row : rows_) std::copy(prefix.begin(), prefix.begin() + count, row.begin());
}

void BaseLogits::check_vocabulary(std::int64_t vocab_size) const {
  if (vocab_ == vocab_size) return;
  fail(ErrorCode::format, file_.path().string(), ": log-probabilities of ", vocab_,
       " tokens, expected the model's ", vocab_size);
}

void BaseLogits::check_rows(std::span<const TokenRow> rows) const {
  const std::string name = file_.path().string();
  for (const TokenRow& row : rows) {
    if (row.size() == rows_[0].size()) continue;
    fail(ErrorCode::format, name, ": made from rows of ", length_, " tokens, expected ", row.size());
  }
  if (rows.size() != rows_.size()) {
    fail(ErrorCode::format, name, ": made from ", counted(rows_.size(), "row"), ", expected the text's ",
         rows.size());
  }
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto [found, wanted] = std::mismatch(rows_[r].begin(), rows_[r].end(), rows[r].begin());
    if (found == rows_[r].end()) continue;
    fail(ErrorCode::format, name, ": made from other text: row ", r, ", token ", found - rows_[r].begin(),
         " is ", *found, ", expected ", *wanted);
  }
}

void BaseLogits::enter(const Batch& batch, std::size_t first_row) {
  const auto count = static_cast<std::size_t>(batch.ids.shape()[0]);
  require(first_row + count <= rows_.size() && batch.ids.shape()[1] + 1 == length_,
          "base logits: the batch is rows ", first_row, " to ", first_row + count, " of ",
          batch.ids.shape()[1] + 1, " tokens, expected some of the file's ", rows_.size(), " of ", length_);
  const Batch own = make_batch(batch.ids.device(), std::span(rows_).subspan(first_row, count));
  require(own.targets.to_vector<std::uint32_t>() == batch.targets.to_vector<std::uint32_t>(),
          "base logits: the batch's tokens are not the file's");
  first_compared_ = static_cast<std::int64_t>(first_row) * compared(length_);
}

const std::byte* BaseLogits::record(std::int64_t position) const {
  const std::size_t tokens = 4 * rows_.size() * static_cast<std::size_t>(length_);
  return &file_.bytes()[kHeadBytes + tokens + static_cast<std::size_t>(position * record_bytes(vocab_))];
}

Reference::Block BaseLogits::block(std::int64_t begin, std::int64_t end, const Buffer& targets) {
  const std::vector<std::uint32_t> rights = targets.to_vector<std::uint32_t>();
  std::vector<float> logits, nll;
  std::vector<double> known;
  logits.reserve(static_cast<std::size_t>((end - begin) * vocab_));
  for (std::int64_t i = begin; i < end; ++i) {
    const std::byte* at = record(first_compared_ + i);
    const auto scale = read<float>(at), least = read<float>(at + 4);
    const auto code = [&](std::int64_t token) { return read<std::uint16_t>(at + 8 + 2 * token); };
    // Else code 0 is the least token's own; 0.001: what f32 may have rounded.
    const bool is_cut = static_cast<double>(scale) * 65535.0 > kDepth - 0.001;
    known.push_back(0.0);
    for (std::int64_t token = 0; token < vocab_; ++token) {
      const bool is_known = !is_cut || code(token) > 0;
      const float p = least + scale * static_cast<float>(code(token));
      logits.push_back(is_known ? p : -std::numeric_limits<float>::infinity());
      if (is_known) known.back() += std::exp(static_cast<double>(p));
    }
    const std::uint32_t right = rights[static_cast<std::size_t>(i - begin)];
    nll.push_back(-(least + scale * static_cast<float>(code(right))));
  }
  const Device& device = targets.device();
  return {Buffer::from(device, {end - begin, vocab_}, logits), Buffer::from(device, {end - begin}, nll),
          known};
}

void save_base_logits(AtomicFile& file, const CausalLm& teacher, Tape& tape, std::span<const TokenRow> rows,
                      std::int64_t batch_size, const RunHooks& hooks) {
  const std::string stage = "saving the teacher";
  check_saved(rows, batch_size);
  const NoGrad guard(tape);
  write_head(file, rows, teacher.config().vocab_size);
  const std::int64_t total = count_positions(rows);
  for (std::size_t begin = 0; begin < rows.size(); begin += static_cast<std::size_t>(batch_size)) {
    hooks.throw_if_stopped(stage);
    const std::size_t count = std::min(static_cast<std::size_t>(batch_size), rows.size() - begin);
    write_batch(file, teacher, tape, make_batch(tape.device(), rows.subspan(begin, count)), begin);
    hooks.report({.stage = stage,
                  .done = count_positions(rows.first(begin + count)),
                  .total = total,
                  .unit = "tokens"});
  }
}

std::uint64_t base_logits_bytes(std::int64_t rows, std::int64_t length, std::int64_t vocab_size) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const auto per_row = static_cast<std::uint64_t>(4 * length + compared(length) * record_bytes(vocab_size));
  const auto count = static_cast<std::uint64_t>(rows);
  return per_row > (kMost - kHeadBytes) / count ? kMost : kHeadBytes + count * per_row;
}

}  // namespace mixtape
