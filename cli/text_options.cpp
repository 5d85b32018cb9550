#include "cli/text_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/json_report.h"
#include "cli/quote.h"
#include "cli/terminal.h"
#include "cli/text_table.h"
#include "mixtape/calib/recipe.h"
#include "mixtape/calib/text_rows.h"
#include "mixtape/core/counted.h"
#include "mixtape/io/tokenizer_files.h"

namespace mixtape::cli {
namespace {

constexpr const char* kSelf = "self";
constexpr const char* kOneRow = "for one row";  // how text_rows.h ends the error of too little text

// Chats of which something isn't used.
void print_losses(const TextRows& text, std::int64_t length) {
  if (text.cut > 0)
    print_fact("cut", "{} of {}, after {} tokens", text.cut, counted(text.documents, "chat"), length);
  if (text.dropped > 0) print_fact("left out", "{} of fewer than 2 tokens", counted(text.dropped, "chat"));
}

bool is_chats(const std::string& file) { return file.ends_with(".jsonl"); }

void refuse_chats(const std::vector<std::string>& text_files) {
  for (const std::string& file : text_files) {
    require(!is_chats(file), "--text: ", file,
            " holds a JSON object a line, expected text; name it with --chats");
  }
}

// Calls fn; an error that says, ending so, that there is too little text also says what may be done: with more text, or
// another name for more of it, and options that ask for less.
template <class Fn>
auto with_ways_out(const Fn& fn, const std::string& end, const std::string& ways_out,
                   const std::string& more = "give more text") {
  try {
    return fn();
  } catch (const Error& error) {
    const std::string what = error.what();
    if (error.code() != ErrorCode::invalid_argument || !what.ends_with(end)) throw;
    fail(error.code(), what, "; ", more, ", or lower ", ways_out);
  }
}

// Whether `name` of --share means the source: its name, or its file's.
bool means(const std::string& name, const RowSource& source) {
  return name == source.name || name == std::filesystem::path(source.name).filename();
}

// Sets the share that "NAME=NUMBER" says.
void set_share(const std::string& text, std::vector<RowSource>& sources) {
  const std::size_t equals = text.rfind('=');
  require(equals != text.npos && equals > 0, "--share is ", text, ", expected NAME=NUMBER");
  const std::string name = text.substr(0, equals);
  double share = 0.0;
  const auto [end, error] = std::from_chars(text.data() + equals + 1, text.data() + text.size(), share);
  require(error == std::errc() && end == text.data() + text.size() && share > 0.0 && share <= 1e9,
          "--share is ", text, ", expected NAME=NUMBER with a number above 0");
  RowSource* found = nullptr;
  std::string names;
  for (RowSource& source : sources) {
    if (source.report_only) continue;
    names += (names.empty() ? "" : ", ") + source.name;
    if (!means(name, source)) continue;
    require(found == nullptr, "--share: ", name, " means several sources, expected one of ", names);
    found = &source;
  }
  require(found != nullptr, "--share names ", name, ", expected one of ", names);
  require(!found->share, "--share names ", name, " twice");
  found->share = share;
}

std::string left_out(const SourceCounts& c) {
  std::string text;
  if (c.copies > 0) text += fmt::format("; {} copies", c.copies);
  if (c.shared > 0) text += fmt::format("; {} that share text with the report", c.shared);
  return text.empty() ? text : text + " left out";
}

void print_sources(const std::vector<SourceCounts>& sources) {
  for (const SourceCounts& c : sources) {
    if (sources.size() == 1 && c.copies + c.shared == 0) return;
    print_fact("source", "{}: {}; {} training, {} validation, {} report{}", printable(c.name),
               counted(c.found, "row"), c.train, c.validation, c.report, left_out(c));
  }
}

}  // namespace

std::chrono::sys_seconds parse_date(const std::string& text) {
  std::tm date{};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%d", &date);
  require(end != nullptr && *end == '\0', "--date is ", text, ", expected YYYY-MM-DD");
  const std::chrono::year_month_day day(std::chrono::year(date.tm_year + 1900),
                                        std::chrono::month(static_cast<unsigned>(date.tm_mon + 1)),
                                        std::chrono::day(static_cast<unsigned>(date.tm_mday)));
  require(day.ok(), "--date is ", text, ", expected a day of the calendar");
  return std::chrono::sys_days(day);
}

std::string date_text(std::chrono::sys_seconds date) {
  const std::chrono::year_month_day day(std::chrono::floor<std::chrono::days>(date));
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(day.year()), static_cast<unsigned>(day.month()),
                     static_cast<unsigned>(day.day()));
}

void TextOptions::add(CLI::App& command) {
  OptionGroup group(command, "Data");
  group.paths("--text", text_files, "FILE", "Text; may be repeated: each file is a source");
  group.paths("--chats", chat_files, "FILE", "Chats or texts, one JSON object a line; may be repeated");
  group.paths("--report-text", report_files, "FILE",
              "Text, or chats in a .jsonl file, for the report alone; may be repeated");
  group.paths(
      "--share", shares, "NAME=X",
      "Shares of the sources among the rows, 1 where none is named; NAME: a file or self; may be repeated");
  group.path("--date", date, "DATE",
             "What chat templates take for today, YYYY-MM-DD; 2024-07-26 if not given");
  group.whole("--length,--max-seq-length", length, {.least = 9, .most = 131073},
              "Tokens per row; each but the last is a position, which predicts the next token");
  group.whole("--rows", train_rows, {.least = 0}, "Training rows, 0: all there are");
  group.whole("--validation-rows", validation_rows, {.least = 1}, "Rows that choose the best state");
  group.whole("--report-rows", report_rows, {.least = 1},
              "Rows kept for the report; of --report-text, of each file");
  group.seed("--seed", seed, "Seed of every random choice");
}

void TextOptions::add_sampling(CLI::App& command) {
  OptionGroup group(command, "Data");
  group.choice("--data", data, {kSelf}, "self: text sampled from the model itself, beside files or alone");
  group.whole("--self-rows", self_rows, {.least = 1}, "Rows to sample with --data self");
  group.choice(
      "--self-from", self_from, {"auto", "start", "chat", "text"},
      "What sampled rows begin with. start: the first token alone; chat: a user's turn of the chat template, "
      "and the model writes both sides; text: the first words of --text rows; auto: as many of each as there "
      "are");
}

std::vector<std::string> TextOptions::files() const {
  std::vector<std::string> all = text_files;
  for (const auto* list : {&chat_files, &report_files}) all.insert(all.end(), list->begin(), list->end());
  return all;
}

void TextOptions::refuse_idle(const CLI::App& command) const {
  const bool reads_chats =
      !chat_files.empty() || std::any_of(report_files.begin(), report_files.end(), is_chats);
  require(reads_chats || !data.empty() || command.count("--date") == 0,
          "--date has no effect: expected --chats beside it");
  if (!date.empty()) parse_date(date);
  const CLI::Option* self_rows_option = command.get_option_no_throw("--self-rows");
  require(!data.empty() || self_rows_option == nullptr || self_rows_option->count() == 0,
          "--self-rows has no effect: expected --data self beside it");
}

bool TextOptions::is_sampled() const {
  require(!text_files.empty() || !chat_files.empty() || !data.empty(),
          "data: found no text, expected one of --text, --chats and --data self");
  require(self_from == "auto" || !data.empty(), "--self-from is ", self_from,
          ", expected --data self beside it");
  return !data.empty();
}

std::vector<TokenRow> TextOptions::file_rows(const Tokenizer& tokenizer, std::int64_t vocab_size) const {
  refuse_chats(text_files);
  const bool is_cut = max_tokens > 0 && max_tokens < length;
  const TextRows text = with_ways_out(
      [&] {
        return text_rows({text_files.begin(), text_files.end()}, tokenizer, positions(), max_tokens);
      },
      kOneRow, str("--length, which is ", length),
      is_cut ? str("raise --max-tokens, which is ", max_tokens) : "give more text");
  if (max_tokens > text.tokens)
    warn(fmt::format("--max-tokens is {}, found {} of text: all are used", max_tokens,
                     counted(text.tokens, "token")));
  check_ids(text.rows, vocab_size);
  return text.rows;
}

ChatOptions TextOptions::chat_options() const {
  ChatOptions chat;
  if (!date.empty()) chat.now = parse_date(date);
  return chat;
}

std::vector<RowSource> TextOptions::chat_sources(const std::vector<std::string>& files,
                                                 const Tokenizer& tokenizer,
                                                 const nlohmann::json& config) const {
  if (files.empty()) return {};
  const auto chat_template = ChatTemplate::from_config(config);
  const ChatOptions chat = chat_options();
  if (chat_template && chat_template->uses_date())
    print_fact("date", "{} (in the chat template)", date_text(chat.now));
  std::vector<RowSource> sources;
  for (const std::string& file : files) {
    TextRows text = chat_rows({file}, tokenizer, chat_template, positions(), chat, ends_texts);
    print_losses(text, length);
    sources.push_back({file, std::move(text.rows)});
  }
  return sources;
}

std::vector<RowSource> TextOptions::file_sources(const Tokenizer& tokenizer, const nlohmann::json& config,
                                                 std::int64_t vocab_size) const {
  refuse_chats(text_files);
  const std::string ways_out = str("--length, which is ", length);
  std::vector<RowSource> sources = with_ways_out(
      [&] {
        return text_sources({text_files.begin(), text_files.end()}, tokenizer, positions());
      },
      kOneRow, ways_out);
  for (RowSource& source : chat_sources(chat_files, tokenizer, config)) sources.push_back(std::move(source));
  for (const std::string& file : report_files) {
    RowSource source = with_ways_out(
        [&] {
          if (is_chats(file)) return chat_sources({file}, tokenizer, config)[0];
          return RowSource{file, text_rows({file}, tokenizer, positions()).rows};
        },
        kOneRow, ways_out);
    source.report_only = true;
    sources.push_back(std::move(source));
  }
  for (const RowSource& source : sources) check_ids(source.rows, vocab_size);
  return sources;
}

Beginnings TextOptions::beginnings(const OpenedModel& opened, const std::vector<RowSource>& files) const {
  Beginnings b;
  const auto wants = [&](const char* kind) { return self_from == "auto" || self_from == kind; };
  if (wants("start")) b.first = first_token(opened);
  const auto chat_template = ChatTemplate::from_source(*opened.source);
  if (wants("chat") && chat_template) b.chat = chat_turns(*chat_template, opened.tokenizer, chat_options());
  if (b.chat) b.ends = stop_ids(*opened.source, opened.tokenizer);
  require(self_from != "chat" || b.chat,
          "--self-from is chat, expected a model with a chat template of turns");
  // A template that leaves no room in a row is of no use here.
  if (self_from == "auto" && b.chat && static_cast<std::int64_t>(b.chat->begin.size()) > positions() / 2)
    b.chat.reset();
  for (const RowSource& source : files) {
    const bool is_text = !source.report_only && !is_chats(source.name);
    if (wants("text") && is_text) b.texts.insert(b.texts.end(), source.rows.begin(), source.rows.end());
  }
  require(self_from != "text" || !b.texts.empty(), "--self-from is text, expected --text beside it");
  check(b, self_rows, positions());
  return b;
}

std::int64_t TextOptions::rows_at_a_time(const ModelConfig& config, const Device& device) const {
  return is_sampled() ? std::min(self_rows, sampled_rows_of(config, positions(), device)) : 0;
}

RowSource TextOptions::sampled_source(const Beginnings& beginnings, const CausalLm& model, Tape& tape,
                                      const RunHooks& hooks) const {
  const std::int64_t at_a_time = rows_at_a_time(model.config(), tape.device());
  return {kSelf, mixtape::self_rows(model, tape, beginnings, self_rows, positions(), at_a_time, seed, hooks)};
}

RowSource TextOptions::expected_source() const {
  RowSource source{kSelf, {}};
  std::uint32_t next = 0;  // no two rows share text
  for (std::int64_t r = 0; r < self_rows; ++r) {
    source.rows.emplace_back(static_cast<std::size_t>(length));
    for (std::uint32_t& id : source.rows.back()) id = next++;
  }
  return source;
}

void TextOptions::sample_only_used(std::vector<RowSource> expected) {
  for (const SourceCounts& c : shared_split(std::move(expected)).sources) {
    const std::int64_t used = c.train + c.validation + c.report;
    if (c.name != kSelf || used >= self_rows) continue;
    print_fact("sampled", "{} of the {} of --self-rows: the split uses no more", counted(used, "row"),
               self_rows);
    self_rows = used;
  }
}

CalibrationData TextOptions::expected_data(std::vector<RowSource> sources) const {
  sources.push_back(expected_source());
  return shared_split(std::move(sources)).data;
}

SourceSplit TextOptions::shared_split(std::vector<RowSource> sources) const {
  for (const std::string& share : shares) set_share(share, sources);
  const SplitOptions wanted = {train_rows, validation_rows, report_rows, seed};
  return with_ways_out([&] { return split_sources(std::move(sources), wanted); }, "",
                       str("--report-rows, --validation-rows or --length, which is ", length,
                           data.empty() ? "" : "; or raise --self-rows"));
}

CalibrationData TextOptions::split(std::vector<RowSource> sources) const {
  SourceSplit split = shared_split(std::move(sources));
  print_sources(split.sources);
  return std::move(split.data);
}

std::string TextOptions::describe() const {
  std::string names;
  for (const auto* list : {&text_files, &chat_files}) {
    for (const std::string& file : *list) names += (names.empty() ? "" : ", ") + file;
  }
  if (!data.empty()) names += names.empty() ? "sampled from the model" : ", sampled from the model";
  return names;
}

nlohmann::json TextOptions::record(const CalibrationData& parts) const {
  std::vector<std::string> names = text_files;
  names.insert(names.end(), chat_files.begin(), chat_files.end());
  nlohmann::json json = {{"files", names},
                         {"length", length},
                         {"train", to_json(parts.train)},
                         {"validation", to_json(parts.validation)},
                         {"report", to_json(parts.report)}};
  if (!report_files.empty()) json["report_files"] = report_files;
  if (!data.empty()) json["sampled_rows"] = self_rows;
  return json;
}

std::vector<TokenRow> rows_of(std::vector<RowSource> sources) {
  std::vector<TokenRow> rows;
  for (RowSource& source : sources)
    std::move(source.rows.begin(), source.rows.end(), std::back_inserter(rows));
  return rows;
}

std::string count_text(std::span<const TokenRow> rows) {
  return counted(rows.size(), "row") + ", " + counted(count_positions(rows), "position");
}

void TextOptions::print_parts(const CalibrationData& parts) const {
  constexpr std::int64_t kFew = 8;  // validation rows
  print_fact("training", "{}", count_text(parts.train));
  print_fact("validation", "{}", count_text(parts.validation));
  print_fact("report", "{}", count_text(parts.report));
  const auto found = std::ssize(parts.train), choosing = std::ssize(parts.validation);
  if (found < train_rows) warn(fmt::format("--rows is {}, found {} for training", train_rows, found));
  if (choosing < kFew) {
    warn(fmt::format("--validation-rows is {}: what is best is partly chosen by chance, take {} or more",
                     choosing, kFew));
  }
}

}  // namespace mixtape::cli
