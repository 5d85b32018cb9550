// Settings of one table of rotary frequencies.
#pragma once

#include <cstdint>
#include <vector>

#include "mixtape/io/json_fwd.h"

namespace mixtape {

class ConfigReader;

enum class RopeType { plain, linear, llama3 };  // `plain` is spelled "default" in files

const char* name(RopeType type);

struct RopeConfig {
  RopeType type = RopeType::plain;
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;
  // linear and llama3
  double factor = 1.0;
  // llama3
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_position_embeddings = 0;

  // How many of a head's dimensions are rotated.
  std::int64_t rotary_dims(std::int64_t head_dim) const;
};

// From a whole config.json, wherever it keeps the settings; the same setting may be spelled in several places
// but not differently. Throws format or not_supported, naming the setting. `theta` is the type's default.
RopeConfig read_rope(const ConfigReader& config, double theta = 10000.0);
// The older spelling, "rope_scaling"; null for the plain type, as older loaders expect.
Json rope_scaling_of(const RopeConfig& rope);

// f_i of pair (i, i + d/2), i < d/2 with d = rotary_dims(head_dim): the angle at position p is p*f_i.
// Computed in f64, scaled as the rope type says.
std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, std::int64_t head_dim);

}  // namespace mixtape
