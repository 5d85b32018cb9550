// Options that several subcommands share: the model, the device, the text.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/signals.h"
#include "mixtape/calib/data.h"
#include "mixtape/core/run_hooks.h"
#include "mixtape/io/model_source.h"
#include "mixtape/io/tokenizer.h"
#include "mixtape/nn/causal_lm.h"

namespace mixtape::cli {

// A model on disk, opened and checked; weights are loaded later.
struct OpenedModel {
  std::unique_ptr<ModelSource> source;
  ModelConfig config;
  Tokenizer tokenizer;
};

struct ModelOptions {
  std::string path;
  std::string device = "auto";
  std::string dtype = "auto";

  void add(CLI::App& command);
  OpenedModel open() const;
  // The activations' type: bf16 for 16-bit models, f32 for f32 ones, or as asked for.
  DType compute_dtype(const ModelConfig& config) const;
};

struct TextOptions {
  std::vector<std::string> text_files;
  std::vector<std::string> chat_files;
  std::string date;  // that chat templates print; empty: always the same one
  std::string data;  // "self" or empty
  std::int64_t length = 512;
  std::int64_t train_rows = 0;
  std::int64_t validation_rows = 16;
  std::int64_t report_rows = 32;
  std::int64_t self_rows = 192;
  std::int64_t max_tokens = 0;  // of the text files; 0: all
  std::uint64_t seed = 0;

  bool ends_texts = false;  // {"text"} rows get the end-of-sequence token, as the reference program's do

  // Options for files, and those that say how many rows.
  void add(CLI::App& command);
  // --data self, for commands that have a model to sample from.
  void add_sampling(CLI::App& command);
  // Whether the rows come from the model itself. Throws invalid_argument unless exactly one kind of text was
  // named.
  bool is_sampled() const;
  // Rows of the files; `config` is the tokenizer_config.json, whose chat template chats need.
  std::vector<TokenRow> file_rows(const Tokenizer& tokenizer, const nlohmann::json& config,
                                  std::int64_t vocab_size) const;
  std::vector<TokenRow> sampled_rows(const OpenedModel& opened, const CausalLm& model, Tape& tape,
                                     const RunHooks& hooks) const;
  std::string describe() const;
};

// A line of warning if rows of `length` positions are longer than the model was made for.
void warn_if_beyond_context(const ModelConfig& config, std::int64_t length);

// The token that begins a text: what the tokenizer puts there, else BOS, else EOS, else token 0.
std::uint32_t first_token(const OpenedModel& opened);

// YYYY-MM-DD; throws invalid_argument for anything else.
std::chrono::sys_seconds parse_date(const std::string& text);
std::string date_text(std::chrono::sys_seconds date);

// "12 rows, 6144 tokens"
std::string count_text(std::span<const TokenRow> rows);

}  // namespace mixtape::cli
