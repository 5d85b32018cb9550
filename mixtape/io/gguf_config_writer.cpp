#include "mixtape/io/gguf_config_writer.h"

#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/config_parts.h"
#include "mixtape/io/gguf_keys.h"

namespace mixtape {
namespace {

using nlohmann::json;
using namespace gguf_key;

void refuse_rotary(const ModelConfig& config, const GgufArchitecture& written, const std::string& where) {
  const RopeConfig& rope = config.ropes.front();
  if (rope.partial_rotary_factor != 1.0 && !written.has_partial_rope) {
    fail(ErrorCode::not_supported, where, ": partial_rotary_factor is ", rope.partial_rotary_factor,
         ", llama.cpp rotates all of head_dim in ", config.architecture->model_type);
  }
  if (rope.type == RopeType::llama3 && !written.has_rope_freqs) {
    fail(ErrorCode::not_supported, where, ": rope type is ", name(rope.type), ", which llama.cpp has not in ",
         config.architecture->model_type);
  }
}

void add_scaling(const RopeConfig& rope, const std::string& prefix, GgufMetadata& metadata) {
  if (rope.type == RopeType::linear) {
    metadata.add(prefix + std::string(kScalingType), "linear");
    metadata.add(prefix + std::string(kScalingFactor), static_cast<float>(rope.factor));
  }
  if (rope.type == RopeType::llama3) {
    metadata.add(prefix + std::string(kOriginalContext),
                 static_cast<std::uint32_t>(rope.original_max_position_embeddings));
  }
}

}  // namespace

void add_gguf_config(const json& config_json, const std::string& where, GgufMetadata& metadata) {
  const ModelConfig config = ModelConfig::parse(config_json, where);
  const std::string& model_type = config.architecture->model_type;
  const GgufArchitecture* written = find_gguf_architecture_of(model_type);
  if (written == nullptr)
    fail(ErrorCode::not_supported, where, ": models of type '", model_type, "' are not written as GGUF");
  refuse_rotary(config, *written, where);
  json complete = with_defaults(config_json, config);
  if (written->write) written->write(config, complete, where);
  if (!complete.contains(kContext.config) || complete[kContext.config].is_null())
    fail(ErrorCode::format, where, ": lacks ", kContext.config, ", which llama.cpp wants");
  metadata.add("general.architecture", written->name);
  const std::string prefix = written->name + ".";
  const auto add_whole = [&](const GgufKey& key) {
    metadata.add(prefix + std::string(key.key), complete.at(key.config).get<std::uint32_t>());
  };
  for (const GgufKey& key : kWholes) add_whole(key);
  for (const GgufKey& key : written->keys) add_whole(key);
  const auto add_real = [&](const GgufKey& key) {
    metadata.add(prefix + std::string(key.key), complete.at(key.config).get<float>());
  };
  for (const GgufKey& key : kReals) add_real(key);
  for (const GgufKey& key : written->reals) add_real(key);
  const RopeConfig& rope = config.ropes.front();
  const std::int64_t rotated = rope.rotary_dims(complete.at(kKeyLength.config).get<std::int64_t>());
  metadata.add(prefix + std::string(kRotaryDims), static_cast<std::uint32_t>(rotated));
  add_scaling(rope, prefix, metadata);
}

std::vector<float> gguf_rope_divisors(const ModelConfig& config) {
  const RopeConfig& rope = config.ropes.front();
  if (rope.type != RopeType::llama3) return {};
  RopeConfig plain = rope;
  plain.type = RopeType::plain;
  const std::int64_t dim = std::get<AttentionSpec>(config.layers.front().mixer).head_dim;
  std::vector<float> divisors = rope_inverse_frequencies(plain, dim);
  const std::vector<float> scaled = rope_inverse_frequencies(rope, dim);
  for (std::size_t i = 0; i < divisors.size(); ++i) divisors[i] /= scaled[i];
  return divisors;
}

}  // namespace mixtape
