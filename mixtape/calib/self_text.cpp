#include "mixtape/calib/self_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mixtape/calib/kept_states.h"
#include "mixtape/calib/state_file.h"
#include "mixtape/core/random.h"

namespace mixtape {
namespace {

// Rows of one kind: prompts of one length.
struct Kind {
  std::vector<TokenRow> prompts;
  SampleOptions options;
  std::int64_t begun() const { return static_cast<std::int64_t>(prompts[0].size()); }
};

nlohmann::ordered_json message(const char* role, const char* content) {
  nlohmann::ordered_json m;
  m["role"] = role;
  m["content"] = content;
  return m;
}

// The first tokens of `count` of the texts, in an order by seed, again and again if there are too few.
std::vector<TokenRow> beginnings_of(const std::vector<TokenRow>& texts, std::size_t count,
                                    std::uint64_t seed) {
  std::vector<const TokenRow*> long_enough;
  for (const TokenRow& row : texts) {
    if (row.size() > kBeginning) long_enough.push_back(&row);
  }
  require(!long_enough.empty(), "self: found no text of more than ", kBeginning, " tokens to begin with");
  const std::vector<std::uint64_t> order = permutation(seed, long_enough.size());
  std::vector<TokenRow> prompts;
  for (std::size_t i = 0; i < count; ++i) {
    const TokenRow& row = *long_enough[order[i % order.size()]];
    prompts.emplace_back(row.begin(), row.begin() + kBeginning);
  }
  return prompts;
}

std::vector<Kind> kinds_of(const Beginnings& b, std::size_t rows, std::uint64_t seed) {
  const std::size_t count = b.first.has_value() + b.chat.has_value() + !b.texts.empty();
  require(count > 0, "self: found no beginning, expected one or more");
  std::vector<Kind> kinds;
  const auto part = [&] { return rows / count + (kinds.size() < rows % count); };
  if (b.first) kinds.push_back({std::vector<TokenRow>(part(), TokenRow{*b.first}), {}});
  if (b.chat) {
    SampleOptions options;
    options.stop = b.ends;
    options.turns = {b.chat->to_assistant, b.chat->to_user};
    kinds.push_back({std::vector<TokenRow>(part(), b.chat->begin), options});
  }
  if (!b.texts.empty()) kinds.push_back({beginnings_of(b.texts, part(), seed), {}});
  std::erase_if(kinds, [](const Kind& kind) { return kind.prompts.empty(); });
  return kinds;
}

// Rows of one length.
void save_rows(const std::filesystem::path& file, const std::vector<TokenRow>& rows) {
  std::vector<std::uint32_t> ids;
  for (const TokenRow& row : rows) ids.insert(ids.end(), row.begin(), row.end());
  const std::int64_t length = rows.empty() ? 0 : std::ssize(rows.front());
  StateFile{.tensors = {{"rows", Buffer::from(Device::cpu(), {std::ssize(rows), length}, ids)}}}.save(file);
}

std::vector<TokenRow> kept_rows(const SafetensorsFile& file) {
  const Buffer all = load("rows", file.at("rows"), DType::u32, Device::cpu());
  require(all.shape().rank() == 2, file.where(), ": rows are ", all, ", expected [rows, length]");
  std::vector<TokenRow> rows;
  for (std::int64_t i = 0; i < all.shape()[0]; ++i)
    rows.push_back(all.slice(i, i + 1).to_vector<std::uint32_t>());
  return rows;
}

std::vector<Kind> checked_kinds(const Beginnings& beginnings, std::int64_t rows, std::int64_t length,
                                std::uint64_t seed) {
  require(rows > 0, "self: rows are ", rows, ", expected 1 or more");
  std::vector<Kind> kinds = kinds_of(beginnings, static_cast<std::size_t>(rows), seed);
  for (const Kind& kind : kinds) {
    require(kind.begun() <= length, "self: a beginning has ", kind.begun(), " tokens, expected at most ",
            length, ", the positions of a row");
  }
  return kinds;
}

}  // namespace

std::optional<ChatTurns> chat_turns(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                    const ChatOptions& options) {
  constexpr const char* kWords[] = {"mixtapeuserone", "mixtapeanswer", "mixtapeusertwo"};
  std::string text;
  try {
    const auto messages = nlohmann::ordered_json::array(
        {message("user", kWords[0]), message("assistant", kWords[1]), message("user", kWords[2])});
    text = chat_template.render(messages.dump(), options);
  } catch (const Error&) {
    return std::nullopt;
  }
  std::vector<TokenRow> parts;
  std::size_t end = 0;
  for (const std::string word : kWords) {
    const std::size_t at = text.find(word, end);
    if (at == text.npos || text.find(word, at + word.size()) != text.npos) return std::nullopt;
    parts.push_back(tokenizer.encode(std::string_view(text).substr(end, at - end), false));
    if (parts.back().empty()) return std::nullopt;
    end = at + word.size();
  }
  return ChatTurns{parts[0], parts[1], parts[2]};
}

void check(const Beginnings& beginnings, std::int64_t rows, std::int64_t length) {
  checked_kinds(beginnings, rows, length, 0);
}

std::vector<TokenRow> self_rows(const CausalLm& model, Tape& tape, const Beginnings& beginnings,
                                std::int64_t rows, std::int64_t length, std::int64_t batch,
                                std::uint64_t seed, const RunHooks& hooks) {
  require(batch > 0, "self: batch is ", batch, ", expected 1 or more");
  const std::vector<Kind> kinds = checked_kinds(beginnings, rows, length, seed);
  std::int64_t tokens = 0, total = 0;
  for (const Kind& kind : kinds) {
    total += static_cast<std::int64_t>(kind.prompts.size()) * (length + 1 - kind.begun());
  }
  const auto report = [&] {
    hooks.report({.stage = "sampling", .done = tokens, .total = total, .unit = "tokens"});
  };
  std::vector<TokenRow> all;
  const KeptStage kept(hooks, "sampling", [&](const std::filesystem::path& file) { save_rows(file, all); });
  if (const auto file = kept.find()) all = kept_rows(*file);
  const std::size_t found = all.size();
  const auto sample_batch = [&](const Kind& kind, std::size_t begin, std::size_t rows_now) {
    const auto at = kind.prompts.begin() + static_cast<std::ptrdiff_t>(begin);
    SampleOptions options = kind.options;
    options.seed = seed + all.size();
    const auto count_token = [&](std::size_t row, std::uint32_t) {
      ++tokens;
      if (row + 1 == rows_now) report();
    };
    for (TokenRow& row : sample(model, tape, {at, at + static_cast<std::ptrdiff_t>(rows_now)},
                                length + 1 - kind.begun(), options, count_token, hooks)) {
      all.push_back(std::move(row));
    }
  };
  report();
  kept.run([&] {
    std::size_t before = 0;  // rows of the batches up to here
    for (const Kind& kind : kinds) {
      for (std::size_t done = 0; done < kind.prompts.size();) {
        const std::size_t now = std::min(static_cast<std::size_t>(batch), kind.prompts.size() - done);
        if (before < found) {
          tokens += static_cast<std::int64_t>(now) * (length + 1 - kind.begun());
        } else {
          sample_batch(kind, done, now);
          kept.keep_if_due();
        }
        done += now;
        before += now;
      }
    }
  });
  return all;
}

}  // namespace mixtape
