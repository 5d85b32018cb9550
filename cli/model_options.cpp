#include "cli/model_options.h"

#include <fmt/core.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "cli/model_path.h"
#include "cli/progress.h"
#include "cli/terminal.h"
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

std::vector<TokenRow> rows_of_chats(const TextOptions& options, const OpenedModel& opened) {
  const auto chat_template = ChatTemplate::from_source(*opened.source);
  ChatOptions chat;
  if (!options.date.empty()) chat.now = parse_date(options.date);
  if (chat_template && chat_template->uses_date())
    fmt::print("date         {} (in the chat template)\n", date_text(chat.now));
  TextRows text = chat_rows({options.chat_files.begin(), options.chat_files.end()}, opened.tokenizer,
                            chat_template, options.length, chat);
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
  return config.dtype.value_or(DType::f32) == DType::f32 ? DType::f32 : DType::bf16;
}

void TextOptions::add(CLI::App& command) {
  OptionGroup group(command, "Data");
  group.paths("--text", text_files, "FILE", "Text; may be repeated");
  group.paths("--chats", chat_files, "FILE", "Chats or texts, one JSON object a line; may be repeated");
  group.path("--date", date, "DATE",
             "What chat templates take for today, YYYY-MM-DD; 2024-07-26 if not given");
  group.choice("--data", data, {"self"}, "self: text sampled from the model itself");
  group.whole("--self-rows", self_rows, {.least = 1}, "Rows to sample with --data self");
  group.whole("--length,--max-seq-length", length, {.least = 8, .most = 131072}, "Positions per row");
  group.whole("--rows", train_rows, {.least = 0}, "Training rows, 0: all there are");
  group.whole("--validation-rows", validation_rows, {.least = 1}, "Rows that choose the best state");
  group.whole("--report-rows", report_rows, {.least = 1}, "Rows kept for the report");
  group.seed("--seed", seed, "Seed of every random choice");
}

std::vector<TokenRow> TextOptions::rows(const OpenedModel& opened, const CausalLm* model, Tape* tape) const {
  const int sources = static_cast<int>(!text_files.empty()) + static_cast<int>(!chat_files.empty()) +
                      static_cast<int>(!data.empty());
  require(sources == 1, "data: found ", sources,
          " kinds of text, expected one of --text, --chats and --data self");
  warn_if_beyond_context(opened.config, length);
  std::vector<TokenRow> rows;
  if (!text_files.empty())
    rows = text_rows({text_files.begin(), text_files.end()}, opened.tokenizer, length, max_tokens).rows;
  if (!chat_files.empty()) rows = rows_of_chats(*this, opened);
  if (!data.empty()) {
    Progress progress("sampling", "tokens");
    rows = sample_rows(*model, *tape, first_token(opened), self_rows, length, 32, seed,
                       [&](std::int64_t done, std::int64_t total) { progress.update(done, total); });
  }
  check_ids(rows, opened.config.vocab_size);
  return rows;
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
