#include "cli/model_options.h"

#include <fmt/core.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "cli/model_path.h"
#include "cli/terminal.h"
#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/sample.h"
#include "mixtape/calib/text_rows.h"
#include "mixtape/io/chat_template.h"
#include "mixtape/io/tensor_list.h"

namespace mixtape::cli {
namespace {

// Chats of which something isn't used.
void print_losses(const TextRows& text, std::int64_t length) {
  if (text.cut > 0)
    fmt::print("cut          {} of {} chats, after {} tokens\n", text.cut, text.documents, length + 1);
  if (text.dropped > 0) fmt::print("left out     {} chats of fewer than 2 tokens\n", text.dropped);
}

std::vector<TokenRow> rows_of_chats(const TextOptions& options, const Tokenizer& tokenizer,
                                    const nlohmann::json& config) {
  const auto chat_template = ChatTemplate::from_config(config);
  ChatOptions chat;
  if (!options.date.empty()) chat.now = parse_date(options.date);
  if (chat_template && chat_template->uses_date())
    fmt::print("date         {} (in the chat template)\n", date_text(chat.now));
  TextRows text = chat_rows({options.chat_files.begin(), options.chat_files.end()}, tokenizer, chat_template,
                            options.length, chat, options.ends_texts);
  print_losses(text, options.length);
  return std::move(text.rows);
}

// What the files have that a reader would want to know of.
void warn_of_oddities(const ModelSource& source, const ModelConfig& config) {
  for (const std::string& notice : source.notices())
    fmt::print(stderr, "mixtape: warning: {}: {}\n", source.where(), notice);
  const std::vector<std::string> foreign = foreign_tensors(source, tensor_list(config));
  if (foreign.empty()) return;
  fmt::print(stderr, "mixtape: warning: {}: {} tensors are not the model's and are not read: {}{}\n",
             source.where(), foreign.size(), foreign.front(), foreign.size() > 1 ? ", ..." : "");
}

}  // namespace

std::uint32_t first_token(const OpenedModel& opened) {
  if (!opened.tokenizer.prefix().empty()) return opened.tokenizer.prefix().front();
  if (const auto bos = opened.tokenizer.bos_id()) return *bos;
  if (const auto eos = opened.tokenizer.eos_id()) return *eos;
  return 0;
}

std::chrono::sys_seconds parse_date(const std::string& text) {
  std::tm date{};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%d", &date);
  require(end != nullptr && *end == '\0', "--date is ", text, ", expected YYYY-MM-DD");
  return std::chrono::sys_seconds(std::chrono::seconds(::timegm(&date)));
}

std::string date_text(std::chrono::sys_seconds date) {
  const std::chrono::year_month_day day(std::chrono::floor<std::chrono::days>(date));
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(day.year()), static_cast<unsigned>(day.month()),
                     static_cast<unsigned>(day.day()));
}

void ModelOptions::add(CLI::App& command) {
  OptionGroup group(command, "Model");
  group
      .path("-m,--model,model", path, "MODEL",
            "Hugging Face or MLX directory, GGUF file, or owner/name in the Hugging Face cache")
      ->required();
  group.path("--device", device, "NAME", kDeviceHelp);
  group.choice("--dtype", dtype, {"auto", "f32", "bf16"}, "Activations; auto: as the model");
}

OpenedModel ModelOptions::open() const {
  auto source = open_model(find_model(path));
  ModelConfig config = source->config();
  warn_of_oddities(*source, config);
  Tokenizer tokenizer = Tokenizer::from_json(source->tokenizer_json(), source->tokenizer_config_json());
  return {std::move(source), std::move(config), std::move(tokenizer)};
}

DType ModelOptions::compute_dtype(const ModelConfig& config) const {
  if (dtype == "f32") return DType::f32;
  if (dtype == "bf16") return DType::bf16;
  return mixtape::compute_dtype(config);
}

void TextOptions::add(CLI::App& command) {
  OptionGroup group(command, "Data");
  group.paths("--text", text_files, "FILE", "Text; may be repeated");
  group.paths("--chats", chat_files, "FILE", "Chats or texts, one JSON object a line; may be repeated");
  group.path("--date", date, "DATE",
             "What chat templates take for today, YYYY-MM-DD; 2024-07-26 if not given");
  group.whole("--length,--max-seq-length", length, {.least = 8, .most = 131072}, "Positions per row");
  group.whole("--rows", train_rows, {.least = 0}, "Training rows, 0: all there are");
  group.whole("--validation-rows", validation_rows, {.least = 1}, "Rows that choose the best state");
  group.whole("--report-rows", report_rows, {.least = 1}, "Rows kept for the report");
  group.seed("--seed", seed, "Seed of every random choice");
}

void TextOptions::add_sampling(CLI::App& command) {
  OptionGroup group(command, "Data");
  group.choice("--data", data, {"self"}, "self: text sampled from the model itself");
  group.whole("--self-rows", self_rows, {.least = 1}, "Rows to sample with --data self");
}

bool TextOptions::is_sampled() const {
  const int kinds = static_cast<int>(!text_files.empty()) + static_cast<int>(!chat_files.empty()) +
                    static_cast<int>(!data.empty());
  require(kinds == 1, "data: found ", kinds,
          " kinds of text, expected one of --text, --chats and --data self");
  return !data.empty();
}

std::vector<TokenRow> TextOptions::file_rows(const Tokenizer& tokenizer, const nlohmann::json& config,
                                             std::int64_t vocab_size) const {
  for (const std::string& file : text_files) {
    require(!file.ends_with(".jsonl"), "--text: ", file,
            " holds a JSON object a line, expected text; name it with --chats");
  }
  std::vector<TokenRow> rows =
      chat_files.empty()
          ? text_rows({text_files.begin(), text_files.end()}, tokenizer, length, max_tokens).rows
          : rows_of_chats(*this, tokenizer, config);
  check_ids(rows, vocab_size);
  return rows;
}

std::vector<TokenRow> TextOptions::sampled_rows(const OpenedModel& opened, const CausalLm& model, Tape& tape,
                                                const RunHooks& hooks) const {
  constexpr std::int64_t kBatch = 32;  // rows at a time
  return sample_rows(model, tape, first_token(opened), self_rows, length, kBatch, seed, hooks);
}

std::string TextOptions::describe() const {
  if (!data.empty()) return "sampled from the model";
  std::string names;
  for (const auto* list : {&text_files, &chat_files}) {
    for (const std::string& file : *list) names += (names.empty() ? "" : ", ") + file;
  }
  return names;
}

void warn_if_beyond_context(const ModelConfig& config, std::int64_t length) {
  if (config.max_position_embeddings <= 0 || length <= config.max_position_embeddings) return;
  warn(fmt::format("--length is {}, the model was made for {} positions (max_position_embeddings)", length,
                   config.max_position_embeddings));
}

std::string count_text(std::span<const TokenRow> rows) {
  return fmt::format("{} rows, {} tokens", rows.size(), count_positions(rows));
}

}  // namespace mixtape::cli
