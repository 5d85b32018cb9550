#include "mixtape/io/gguf_config_writer.h"

#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/config_parts.h"
#include "mixtape/io/gguf_keys.h"
#include "mixtape/io/gguf_rope.h"
#include "mixtape/io/gguf_values.h"

namespace mixtape {

using nlohmann::json;
using namespace gguf_key;

void add_gguf_config(const json& config_json, const std::string& where, GgufMetadata& metadata) {
  const ModelConfig config = ModelConfig::parse(config_json, where);
  const std::string& model_type = config.architecture->model_type;
  const GgufArchitecture* written = find_gguf_architecture_of(model_type);
  if (written == nullptr)
    fail(ErrorCode::not_supported, where, ": models of type '", model_type, "' are not written as GGUF");
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
  add_gguf_rope(config, *written, where, metadata);
}

}  // namespace mixtape
