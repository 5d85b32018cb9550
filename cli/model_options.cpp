#include "cli/model_options.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cli/model_path.h"
#include "cli/terminal.h"
#include "mixtape/calib/calibrate.h"
#include "mixtape/core/counted.h"
#include "mixtape/io/tensor_list.h"

namespace mixtape::cli {
namespace {

// What the files have that a reader would want to know of.
void warn_of_oddities(const ModelSource& source, const ModelConfig& config) {
  for (const std::string& notice : source.notices()) warn(source.where() + ": " + notice);
  const std::vector<std::string> foreign = foreign_tensors(source, tensor_list(config));
  if (foreign.empty()) return;
  warn(fmt::format("{}: not the model's and not read: {}, {}{}", source.where(),
                   counted(foreign.size(), "tensor"), foreign.front(), foreign.size() > 1 ? ", ..." : ""));
}

}  // namespace

std::uint32_t first_token(const OpenedModel& opened) {
  if (!opened.tokenizer.prefix().empty()) return opened.tokenizer.prefix().front();
  if (const auto bos = opened.tokenizer.bos_id()) return *bos;
  if (const auto eos = opened.tokenizer.eos_id()) return *eos;
  return 0;
}

void ModelOptions::add(CLI::App& command) {
  add_model(command);
  add_device(command);
}

void ModelOptions::add_model(CLI::App& command) {
  OptionGroup group(command, "Model");
  group
      .path("-m,--model,model", path, "MODEL",
            "Hugging Face or MLX directory, GGUF file, or owner/name in the Hugging Face cache")
      ->required();
}

void ModelOptions::add_device(CLI::App& command, const char* help) {
  OptionGroup(command, "Model").path("--device", device, "NAME", help);
}

void ModelOptions::add_dtype(CLI::App& command) {
  OptionGroup(command, "Model")
      .choice("--dtype", dtype, {"auto", "f32", "bf16"}, "Activations: f32 or bf16; auto: as the model");
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

void warn_if_beyond_context(const ModelConfig& config, std::int64_t length) {
  for (const RopeConfig& rope : config.ropes) rope.check_length(length - 1);
  if (config.max_position_embeddings <= 0 || length - 1 <= config.max_position_embeddings) return;
  warn(fmt::format("--length is {}, the model was made for {} (max_position_embeddings)", length,
                   counted(config.max_position_embeddings, "position")));
}

}  // namespace mixtape::cli
