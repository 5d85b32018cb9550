// The `quantization` object of an MLX config.json: how each module of a model is stored.
//   {"group_size": 64, "bits": 4, "mode": "affine", "<module path>": {"group_size": 32, "bits": 8} or false}
// A module path is a tensor's name without ".weight". In a plan (plan_file.h) modes are also those of GGUF's blocks,
//   {"mode": "q4_k"}
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mixtape/io/json_fwd.h"
#include "mixtape/quant/weight_format.h"

namespace mixtape {

// {"group_size": 64, "bits": 4} or {"mode": "q4_k"}.
Json format_json(const WeightFormat& format);

// Codes of this format, or none: the module stays in float.
using StoredAs = std::optional<WeightFormat>;

struct QuantizationConfig {
  WeightFormat defaults;
  std::map<std::string, StoredAs> modules;  // what deviates from the defaults, by module path

  // Throws format for anything malformed, not_supported for a mode other than affine. Messages begin with
  // `where`.
  static QuantizationConfig parse(const Json& object, const std::string& where);
  // From a whole config.json: its "quantization", or an MLX-style "quantization_config"; none for a float
  // model. Throws not_supported, naming it, for another quantization method.
  static std::optional<QuantizationConfig> find(const Json& config, const std::string& where);
  Json to_json() const;

  // The entry for `path`, also under the known renamings; null if there is none.
  const StoredAs* find_module(const std::string& path) const;
  // Throws format naming the first key with a format that is none of `paths` under the known renamings.
  void check_keys(const std::vector<std::string>& paths, const std::string& where) const;
};

// Paths that differ only in "language_model.", in front or behind "model.", name the same module.
std::string canonical_path(const std::string& path);

}  // namespace mixtape
