#include "mixtape/calib/cached_teacher.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "mixtape/calib/fingerprint.h"
#include "mixtape/calib/logit_blocks.h"
#include "mixtape/io/atomic_file.h"
#include "mixtape/io/json_file.h"
#include "mixtape/io/safetensors.h"
#include "mixtape/io/safetensors_writer.h"

namespace mixtape {
namespace {

constexpr const char* kDescription = "targets.json";

std::filesystem::path row_file(const std::filesystem::path& directory, std::size_t row) {
  return directory / str("row-", row, ".safetensors");
}

void write_row(const std::filesystem::path& file, const TopKTargets& targets) {
  const std::vector<TensorSpec> specs = {{"indices", FileDType::U32, targets.indices.shape()},
                                         {"logits", FileDType::F32, targets.logits.shape()},
                                         {"rest_lse", FileDType::F32, targets.rest_lse.shape()}};
  SafetensorsWriter writer(file, specs, {});
  writer.write("indices", targets.indices);
  writer.write("logits", targets.logits);
  writer.write("rest_lse", targets.rest_lse);
  writer.commit();
}

// Copies the rows of one file to positions [at, ...) of the batch.
void read_tensor(const SafetensorsFile& file, const std::string& name, const Buffer& to, std::int64_t at) {
  const TensorView view = file.at(name);
  const std::int64_t rows = view.shape[0];
  require(at + rows <= to.shape()[0] && view.shape.numel() * to.shape()[0] == to.numel() * rows,
          "targets: tensor '", name, "' is ", view.shape, ", expected rows of ", to);
  to.slice(at, at + rows).write_bytes(view.bytes.data());
}

TopKTargets new_targets(const Device& device, std::int64_t positions, std::int64_t k) {
  return {device.alloc(DType::f32, {positions, k}), device.alloc(DType::u32, {positions, k}),
          device.alloc(DType::f32, {positions})};
}

// Of positions that no row of a batch may reach: what stands there is of no weight, but has to be targets.
TopKTargets any_targets(const Device& device, std::int64_t positions, std::int64_t k) {
  TopKTargets targets = new_targets(device, positions, k);
  std::vector<std::uint32_t> indices(static_cast<std::size_t>(positions * k));
  for (std::size_t i = 0; i < indices.size(); ++i)
    indices[i] = static_cast<std::uint32_t>(static_cast<std::int64_t>(i) % k);
  targets.indices = Buffer::from(device, {positions, k}, indices);
  return targets;
}

TopKTargets targets_of(const CausalLm& teacher, Tape& tape, std::span<const TokenRow> row,
                       const KlOptions& options) {
  const Device& device = tape.device();
  const Batch batch = make_batch(device, row);
  const Buffer hidden = hidden_rows(teacher, batch.ids);
  const TopKTargets all = new_targets(device, batch.ids.numel(), options.top_k);
  for_each_logit_block(teacher, batch.ids.numel(), device, [&](std::int64_t begin, std::int64_t end) {
    const Var logits = teacher.logits(tape.constant(hidden.slice(begin, end)));
    const TopKTargets part =
        make_top_k_targets(tape.encoder(), logits.value(), options.top_k, options.temperature);
    tape.encoder().copy(part.logits, all.logits.slice(begin, end));
    tape.encoder().copy(part.indices, all.indices.slice(begin, end));
    tape.encoder().copy(part.rest_lse, all.rest_lse.slice(begin, end));
  });
  tape.encoder().commit_and_wait();
  return all;
}

// What another host has made comes in sight after some seconds where a folder is shared by network.
void require_seen(const std::filesystem::path& directory) {
  constexpr int kTries = 300;
  for (int i = 0; i < kTries; ++i) {
    std::error_code ignored;
    if (std::filesystem::exists(directory, ignored)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  fail(ErrorCode::io, directory.string(),
       ": is not here, though the first process made it, expected a folder that ",
       "all hosts of the run share");
}

// A member's share of the rows.
void write_rows(const std::filesystem::path& directory, const CausalLm& teacher, Tape& tape,
                std::span<const TokenRow> rows, const KlOptions& options, Communicator& communicator,
                const RunHooks& hooks) {
  require_seen(directory);
  const NoGrad guard(tape);
  const auto report = [&](std::size_t done) {
    hooks.report({.stage = "teacher targets",
                  .done = static_cast<std::int64_t>(std::min(done, rows.size())),
                  .total = static_cast<std::int64_t>(rows.size()),
                  .unit = "rows"});
  };
  report(0);
  const auto members = static_cast<std::size_t>(communicator.size()),
             rank = static_cast<std::size_t>(communicator.rank());
  for (std::size_t begin = 0; begin < rows.size(); begin += members) {
    // All stop at once: nobody writes into what member 0 removes.
    const bool stops = communicator.sum_of(hooks.stops() ? 1.0 : 0.0) > 0.0;
    if (stops) fail(ErrorCode::interrupted, "teacher targets: interrupted");
    const std::size_t r = begin + rank;
    if (r < rows.size())
      write_row(row_file(directory, r), targets_of(teacher, tape, rows.subspan(r, 1), options));
    report(begin + members);
  }
}

}  // namespace

void require_targets(const std::filesystem::path& directory) {
  std::error_code ignored;
  const bool is_directory = std::filesystem::is_directory(directory, ignored);
  const char* found = !is_directory                                   ? "no directory"
                      : std::filesystem::is_empty(directory, ignored) ? "an empty directory"
                                                                      : "a directory of other files";
  require(is_directory && std::filesystem::exists(directory / kDescription, ignored), directory.string(),
          ": found ", found, ", expected a teacher's targets (", kDescription,
          ") or a name that doesn't exist yet");
}

void check_targets(const std::filesystem::path& directory, const std::string& fingerprint) {
  require_targets(directory);
  const nlohmann::json description = read_json(directory / kDescription);
  const std::string found = description.value("fingerprint", "");
  if (found != fingerprint) {
    fail(ErrorCode::format, (directory / kDescription).string(),
         ": targets were made from other data, model or settings: fingerprint is '", found, "', expected '",
         fingerprint, "'");
  }
}

CachedTeacher::CachedTeacher(const std::filesystem::path& directory, const std::string& fingerprint,
                             Tape& tape, const KlOptions& options)
    : directory_(directory), tape_(tape), options_(options) {
  check_targets(directory, fingerprint);
}

void CachedTeacher::load(const Batch& batch, std::span<const std::size_t> rows) {
  const std::int64_t positions = batch.ids.numel(), columns = batch.ids.shape()[1];
  TopKTargets& kept = by_positions_[positions];
  if (!kept.logits) kept = any_targets(tape_.device(), positions, options_.top_k);
  targets_ = kept;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const SafetensorsFile file = SafetensorsFile::open(row_file(directory_, rows[r]));
    const std::int64_t at = static_cast<std::int64_t>(r) * columns;
    read_tensor(file, "logits", targets_.logits, at);
    read_tensor(file, "indices", targets_.indices, at);
    read_tensor(file, "rest_lse", targets_.rest_lse, at);
  }
}

Buffer CachedTeacher::losses(CommandEncoder& encoder, const Buffer& logits, std::int64_t begin,
                             std::int64_t end, const LogitGradient& gradient) {
  const TopKTargets block = {targets_.logits.slice(begin, end), targets_.indices.slice(begin, end),
                             targets_.rest_lse.slice(begin, end)};
  return top_k_losses(encoder, block, logits, options_, gradient);
}

void write_targets(const std::filesystem::path& directory, const std::string& fingerprint,
                   const CausalLm& teacher, Tape& tape, std::span<const TokenRow> rows,
                   const KlOptions& options, Communicator& communicator, const RunHooks& hooks) {
  require(options.top_k > 0, "targets: K is ", options.top_k, ", expected 1 or more");
  std::optional<AtomicDirectory> output;
  if (communicator.rank() == 0 && !std::filesystem::exists(directory)) output.emplace(directory);
  const std::string place = communicator.text_of_first(output ? output->path().string() : "");
  if (!place.empty()) write_rows(place, teacher, tape, rows, options, communicator, hooks);
  communicator.meet();  // the rows are there
  if (output) {
    write_file(output->path() / kDescription, nlohmann::json{{"fingerprint", fingerprint}}.dump(2) + "\n");
    output->commit();
  }
  communicator.meet();  // all of it is
  require_seen(directory);
}

std::string targets_fingerprint(const ModelSource& teacher, std::span<const TokenRow> rows,
                                const KlOptions& options) {
  return str("model ", model_fingerprint(teacher), " rows ", rows.size(), " ", rows_fingerprint(rows), " k ",
             options.top_k, " t ", options.temperature);
}

}  // namespace mixtape
