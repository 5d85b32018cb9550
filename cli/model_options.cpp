#include "cli/model_options.h"

#include <fmt/core.h>

#include <atomic>
#include <csignal>
#include <nlohmann/json.hpp>

#include "cli/progress.h"
#include "mixtape/calib/sample.h"
#include "mixtape/io/chat_template.h"
#include "mixtape/io/text.h"

namespace mixtape::cli {
namespace {

std::atomic<bool> interrupt_seen = false;

extern "C" void on_interrupt(int signal) {
  interrupt_seen = true;
  std::signal(signal, SIG_DFL);
}

std::vector<TokenRow> text_rows(const TextOptions& options, const Tokenizer& tokenizer) {
  std::vector<std::uint32_t> stream;
  for (const std::string& file : options.text_files) {
    const std::vector<std::uint32_t> ids = tokenizer.encode(read_utf8_file(file), false);
    stream.insert(stream.end(), ids.begin(), ids.end());
  }
  if (options.max_tokens > 0)
    stream.resize(std::min(stream.size(), static_cast<std::size_t>(options.max_tokens)));
  return cut_rows(stream, row_prefix(tokenizer), options.length);
}

// One row per chat, cut at length+1 tokens.
std::vector<TokenRow> chat_rows(const TextOptions& options, const OpenedModel& opened) {
  const auto chat_template = ChatTemplate::from_config(opened.source->tokenizer_config_json());
  std::vector<TokenRow> rows;
  for (const std::string& file : options.chat_files) {
    for (const Document& document : read_jsonl(file)) {
      require(!document.is_chat() || chat_template, file,
              ": holds chats, but the model has no chat template");
      ChatOptions options_of_chat;
      options_of_chat.tools = document.tools;
      const std::string text =
          document.is_chat() ? chat_template->render(document.messages, options_of_chat) : document.text;
      TokenRow row = opened.tokenizer.encode(text, !document.is_chat());
      row.resize(std::min(row.size(), static_cast<std::size_t>(options.length) + 1));
      if (row.size() > 1) rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace

std::uint32_t first_token(const OpenedModel& opened) {
  if (const auto bos = opened.tokenizer.bos_id()) return *bos;
  if (const auto eos = opened.tokenizer.eos_id()) return *eos;
  return 0;
}

void ModelOptions::add(CLI::App& command) {
  command.add_option("--model", path, "Model: a Hugging Face or MLX directory, or a .gguf file")->required();
  command.add_option("--device", device, "cpu, cuda, cuda:N or auto")->capture_default_str();
  command.add_option("--dtype", dtype, "Activations: f32, bf16, or auto (as the model)")
      ->check(CLI::IsMember({"auto", "f32", "bf16"}))
      ->capture_default_str();
}

OpenedModel ModelOptions::open() const {
  auto source = open_model(path);
  ModelConfig config = source->config();
  Tokenizer tokenizer = Tokenizer::from_json(source->tokenizer_json(), source->tokenizer_config_json());
  return {std::move(source), std::move(config), std::move(tokenizer)};
}

DType ModelOptions::compute_dtype(const ModelConfig& config) const {
  if (dtype == "f32") return DType::f32;
  if (dtype == "bf16") return DType::bf16;
  return config.dtype.value_or(DType::f32) == DType::f32 ? DType::f32 : DType::bf16;
}

void TextOptions::add(CLI::App& command) {
  command.add_option("--text", text_files, "Text file; may be repeated");
  command.add_option("--chats", chat_files, "Chats, one JSON object a line; may be repeated");
  command.add_option("--data", data, "self: text sampled from the model itself")
      ->check(CLI::IsMember({"self"}));
  command.add_option("--length", length, "Positions per row")
      ->check(CLI::Range(8, 131072))
      ->capture_default_str();
  command.add_option("--rows", train_rows, "Training rows, 0 for all there are")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--validation-rows", validation_rows, "Rows that choose the best state")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--report-rows", report_rows, "Rows kept for the report")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--self-rows", self_rows, "Rows to sample with --data self")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--seed", seed, "Seed of every random choice")->capture_default_str();
}

std::vector<TokenRow> TextOptions::rows(const OpenedModel& opened, const CausalLm* model, Tape* tape) const {
  const int sources = static_cast<int>(!text_files.empty()) + static_cast<int>(!chat_files.empty()) +
                      static_cast<int>(!data.empty());
  require(sources == 1, "data: found ", sources,
          " kinds of text, expected one of --text, --chats and --data self");
  std::vector<TokenRow> rows;
  if (!text_files.empty()) rows = text_rows(*this, opened.tokenizer);
  if (!chat_files.empty()) rows = chat_rows(*this, opened);
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

std::vector<std::uint32_t> row_prefix(const Tokenizer& tokenizer) {
  const std::vector<std::uint32_t> empty = tokenizer.encode("", true);
  if (!empty.empty() && tokenizer.bos_id() && empty.front() == *tokenizer.bos_id()) return {empty.front()};
  return {};
}

std::string count_text(std::span<const TokenRow> rows) {
  return fmt::format("{} rows, {} tokens", rows.size(), count_positions(rows));
}

void watch_interrupts() { std::signal(SIGINT, on_interrupt); }
bool interrupted() { return interrupt_seen; }

}  // namespace mixtape::cli
