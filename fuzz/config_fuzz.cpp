// A config.json: the model's, and its quantization.
#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "mixtape/io/json_file.h"
#include "mixtape/io/model_config.h"
#include "mixtape/quant/quantization_config.h"

using namespace mixtape;

namespace {

void read_model(const nlohmann::json& json) {
  const ModelConfig config = ModelConfig::parse(json, "config");
  const auto& attention = std::get<AttentionSpec>(config.layers.front().mixer);
  rope_inverse_frequencies(config.ropes.front(), attention.head_dim);
}

void read_quantization(const nlohmann::json& json) {
  const auto config = QuantizationConfig::find(json, "config");
  if (!config) return;
  for (const auto& [path, stored] : config->modules) config->find_module(canonical_path(path));
  fuzz::allow_error([&] { config->check_keys({"lm_head", "model.layers.0.mlp.up_proj"}, "config"); });
  to_mlx_config(json, config->to_json(), "config");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::allow_error([&] {
    const nlohmann::json json = parse_json(fuzz::text_of(data, size), "config");
    fuzz::allow_error([&] { read_model(json); });
    fuzz::allow_error([&] { read_quantization(json); });
  });
  return 0;
}
