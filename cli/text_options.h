// Options of the text that a run learns from and is measured on.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/model_options.h"
#include "mixtape/calib/self_text.h"
#include "mixtape/calib/split_sources.h"
#include "mixtape/core/run_hooks.h"
#include "mixtape/io/chat_template.h"

namespace mixtape::cli {

struct TextOptions {
  std::vector<std::string> text_files;
  std::vector<std::string> chat_files;
  std::vector<std::string> report_files;  // for the report alone; .jsonl: chats
  std::vector<std::string> shares;        // NAME=NUMBER
  std::string date;                       // that chat templates print; empty: always the same one
  std::string data;                       // "self" or empty
  std::string self_from = "auto";         // what sampled rows begin with
  std::int64_t length = 513;  // tokens of a row; each but the last is a position, which predicts the next
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
  // Whether some of the rows come from the model itself. Throws invalid_argument if no text was named, or options
  // don't go together.
  bool is_sampled() const;
  // Throws invalid_argument for options that would say nothing.
  void refuse_idle(const CLI::App& command) const;
  std::vector<std::string> files() const;  // all that are read
  // Rows of the text files, end to end.
  std::vector<TokenRow> file_rows(const Tokenizer& tokenizer, std::int64_t vocab_size) const;
  // One source for each file, those of the report last; `config` is the tokenizer_config.json, whose chat template
  // chats need.
  std::vector<RowSource> file_sources(const Tokenizer& tokenizer, const nlohmann::json& config,
                                      std::int64_t vocab_size) const;
  // What rows sampled from the model begin with; those of `files` may begin some. Throws invalid_argument where
  // nothing of what is asked for is there, or a beginning fills a row.
  Beginnings beginnings(const OpenedModel& opened, const std::vector<RowSource>& files) const;
  // Rows that are sampled beside each other; 0 where none are.
  std::int64_t rows_at_a_time(const ModelConfig& config, const Device& device) const;
  RowSource sampled_source(const Beginnings& beginnings, const CausalLm& model, Tape& tape,
                           const RunHooks& hooks) const;
  // As many different rows of as many tokens as sampled_source gives, to see how they will be split.
  RowSource expected_source() const;
  // Lowers self_rows to what the split of `expected`, with such rows among it, uses, and says so.
  void sample_only_used(std::vector<RowSource> expected);
  // The data as they will be once there are sampled rows beside these.
  CalibrationData expected_data(std::vector<RowSource> sources) const;
  // By --share and the numbers of rows.
  SourceSplit shared_split(std::vector<RowSource> sources) const;
  // The same; prints what became of each source.
  CalibrationData split(std::vector<RowSource> sources) const;
  // The lines "training", "validation" and "report"; warns of fewer rows than asked for, and of too few to choose by.
  void print_parts(const CalibrationData& parts) const;
  std::int64_t positions() const { return length - 1; }  // of a row
  std::string describe() const;
  // For what is written of a run: the files, and rows, positions and a fingerprint of each part.
  nlohmann::json record(const CalibrationData& parts) const;

 private:
  std::vector<RowSource> chat_sources(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                                      const nlohmann::json& config) const;
  ChatOptions chat_options() const;
};

// All rows in one list.
std::vector<TokenRow> rows_of(std::vector<RowSource> sources);

// YYYY-MM-DD; throws invalid_argument for anything else.
std::chrono::sys_seconds parse_date(const std::string& text);
std::string date_text(std::chrono::sys_seconds date);

// "12 rows, 6144 positions"
std::string count_text(std::span<const TokenRow> rows);

}  // namespace mixtape::cli
