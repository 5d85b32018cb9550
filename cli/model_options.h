// Options that several subcommands share: the model and the device.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "cli/options.h"
#include "cli/signals.h"
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
  void add_model(CLI::App& command);                                   // what add() adds, without the device
  void add_device(CLI::App& command, const char* help = kDeviceHelp);  // without the model
  void add_dtype(CLI::App& command);                                   // of commands that run the model
  OpenedModel open() const;
  // The activations' type: bf16 for 16-bit models, f32 for f32 ones, or as asked for.
  DType compute_dtype(const ModelConfig& config) const;
};

// A line of warning if rows of `length` tokens, the last of which is only predicted, are longer than the model was made
// for.
void warn_if_beyond_context(const ModelConfig& config, std::int64_t length);

// The token that begins a text: what the tokenizer puts there, else BOS, else EOS, else token 0.
std::uint32_t first_token(const OpenedModel& opened);

}  // namespace mixtape::cli
