#include "mixtape/quant/quantization_config.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

using nlohmann::json;

std::int32_t read_int(const json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) {
    fail(ErrorCode::format, where, ": '", key, "' is ", found == object.end() ? "missing" : found->dump(),
         ", expected a whole number");
  }
  const auto value = found->get<std::int64_t>();
  return value < 0 || value > 1024 ? -1 : static_cast<std::int32_t>(value);
}

void refuse_unknown_keys(const json& object, const std::string& where) {
  for (const auto& [key, value] : object.items()) {
    if (key != "bits" && key != "group_size" && key != "mode")
      fail(ErrorCode::format, where, ": found key '", key, "', expected bits, group_size or mode");
  }
}

// GGUF's blocks, or none: affine.
BlockType read_mode(const json& object, const std::string& where) {
  const auto mode = object.find("mode");
  if (mode == object.end() || *mode == "affine") return BlockType::none;
  const BlockType type = mode->is_string() ? block_type_of(mode->get<std::string>()) : BlockType::none;
  if (type != BlockType::none) return type;
  fail(ErrorCode::not_supported, where, ": mode is ", mode->dump(),
       ", expected \"affine\", or in a plan a type of GGUF's such as \"q4_k\"");
}

bool states(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && !found->is_null();
}

// Absent numbers, and nulls (mlx-lm writes them for mixed recipes), are the defaults'.
WeightFormat read_params(const json& object, WeightFormat params, const std::string& where) {
  if (const BlockType type = read_mode(object, where); type != BlockType::none) return type;
  if (params.is_blocks()) params = AffineParams();
  if (states(object, "bits")) params.bits = read_int(object, "bits", where);
  if (states(object, "group_size")) params.group_size = read_int(object, "group_size", where);
  try {
    params.check(where);
  } catch (const Error& error) {
    fail(ErrorCode::format, error.what());
  }
  return params;
}

StoredAs read_module(const json& value, const WeightFormat& defaults, const std::string& where) {
  if (value.is_boolean()) return value.get<bool>() ? StoredAs(defaults) : std::nullopt;
  if (value.is_object()) {
    refuse_unknown_keys(value, where);
    if (read_mode(value, where) != BlockType::none &&
        (value.contains("bits") || value.contains("group_size")))
      fail(ErrorCode::format, where, ": found bits or group_size beside mode ", value["mode"].dump(),
           ", which has its own");
    return read_params(value, defaults, where);
  }
  fail(ErrorCode::format, where, ": is ", value.dump(), ", expected an object, true or false");
}

void refuse_blocks(const WeightFormat& format, const std::string& where) {
  if (format.is_blocks())
    fail(ErrorCode::not_supported, where, ": mode is ", format.name(), ", expected \"affine\"");
}

// Of a directory: its tensors are MLX's.
void refuse_blocks(const QuantizationConfig& config, const std::string& where) {
  refuse_blocks(config.defaults, where + ": quantization");
  for (const auto& [path, stored] : config.modules) {
    if (stored) refuse_blocks(*stored, where + ": quantization of '" + path + "'");
  }
}

}  // namespace

json format_json(const WeightFormat& format) {
  if (!format.is_blocks()) return {{"group_size", format.group_size}, {"bits", format.bits}};
  std::string mode = format.name();
  std::transform(mode.begin(), mode.end(), mode.begin(), [](unsigned char c) { return std::tolower(c); });
  return {{"mode", mode}};
}

QuantizationConfig QuantizationConfig::parse(const json& object, const std::string& where) {
  if (!object.is_object())
    fail(ErrorCode::format, where, ": quantization is ", object.dump(), ", expected an object");
  QuantizationConfig config;
  for (const char* key : {"bits", "group_size"}) {
    if (read_mode(object, where + ": quantization") == BlockType::none && !object.contains(key))
      fail(ErrorCode::format, where, ": '", key, "' is missing, expected a whole number");
  }
  config.defaults = read_params(object, {}, where + ": quantization");
  std::map<std::string, std::string> seen;
  for (const auto& [key, value] : object.items()) {
    if (key == "bits" || key == "group_size" || key == "mode") continue;
    const std::string at = where + ": quantization of '" + key + "'";
    const auto [same, is_new] = seen.emplace(canonical_path(key), key);
    if (!is_new) fail(ErrorCode::format, at, ": names the same module as '", same->second, "'");
    config.modules.emplace(key, read_module(value, config.defaults, at));
  }
  return config;
}

std::optional<QuantizationConfig> QuantizationConfig::find(const json& config, const std::string& where) {
  for (const char* key : {"quantization", "quantization_config"}) {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) continue;
    if (found->is_object() && found->contains("quant_method")) {
      fail(ErrorCode::not_supported, where, ": quantization method ", (*found)["quant_method"].dump(),
           " is not supported, expected MLX affine");
    }
    const QuantizationConfig read = parse(*found, where);
    refuse_blocks(read, where);
    return read;
  }
  return std::nullopt;
}

json QuantizationConfig::to_json() const {
  json object = format_json(defaults);
  if (!defaults.is_blocks()) object["mode"] = "affine";
  for (const auto& [path, stored] : modules) object[path] = stored ? format_json(*stored) : json(false);
  return object;
}

const StoredAs* QuantizationConfig::find_module(const std::string& path) const {
  const auto exact = modules.find(path);
  if (exact != modules.end()) return &exact->second;
  const std::string wanted = canonical_path(path);
  for (const auto& [key, stored] : modules) {
    if (canonical_path(key) == wanted) return &stored;
  }
  return nullptr;
}

void QuantizationConfig::check_keys(const std::vector<std::string>& paths, const std::string& where) const {
  std::set<std::string> known;
  for (const std::string& path : paths) known.insert(canonical_path(path));
  for (const auto& [key, stored] : modules) {
    if (stored && !known.contains(canonical_path(key))) {
      fail(ErrorCode::format, where, ": quantization names '", key, "', but the model has no such module");
    }
  }
}

std::string canonical_path(const std::string& path) {
  const std::string part = "language_model.", model = "model.";
  if (path.starts_with(part)) return path.substr(part.size());
  if (path.starts_with(model + part)) return model + path.substr(model.size() + part.size());
  return path;
}

}  // namespace mixtape
