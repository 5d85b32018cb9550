// Settings of one table of rotary frequencies.
#pragma once

#include <cstdint>
#include <vector>

#include "mixtape/io/json_fwd.h"

namespace mixtape {

class ConfigReader;

enum class RopeType {
  plain,
  linear,
  llama3,
  yarn,
  longrope,
  dynamic
};  // `plain` is spelled "default" in files

const char* name(RopeType type);

struct RopeConfig {
  RopeType type = RopeType::plain;
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;
  // linear, llama3, yarn and dynamic
  double factor = 1.0;
  // llama3, yarn, longrope and dynamic: the length that the model was first made for
  std::int64_t original_max_position_embeddings = 0;
  // llama3
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  // yarn: pairs that turn beta_fast times or more within that length keep their frequency, those that turn beta_slow
  // times or less have it divided by `factor`. With `truncate` both bounds are whole pairs.
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;
  // longrope: what the frequency of each pair is divided by, up to that length and in longer sequences
  std::vector<double> short_factor, long_factor;
  // yarn and longrope: of q and k when they are rotated
  double attention_factor = 1.0;

  // How many of a head's dimensions are rotated.
  std::int64_t rotary_dims(std::int64_t head_dim) const;
  // Whether a sequence of so many tokens has other frequencies than a short one.
  bool is_long(std::int64_t length) const {
    return type == RopeType::longrope && length > original_max_position_embeddings;
  }
  // Whether the settings say frequencies for a sequence of so many tokens: dynamic ones change with every token beyond
  // the original length, also those of tokens that are rotated already.
  bool allows(std::int64_t length) const;
  // Throws not_supported where they don't.
  void check_length(std::int64_t length) const;
};

// From a whole config.json, wherever it keeps the settings; the same setting may be spelled in several places
// but not differently. Throws format or not_supported, naming the setting. `theta` is the type's default.
RopeConfig read_rope(const ConfigReader& config, double theta = 10000.0);
// Throws format unless the settings suit heads of this size.
void check_rope(const ConfigReader& config, const RopeConfig& rope, std::int64_t head_dim);
// The older spelling, "rope_scaling"; null for the plain type, as older loaders expect.
Json rope_scaling_of(const RopeConfig& rope);

// What yarn's attention factor is where nothing is said: 1 + 0.1 ln(factor).
double yarn_attention_factor(double factor);
// The same for longrope: sqrt(1 + ln(length / original) / ln(original)).
double longrope_attention_factor(double length, double original);

// f_i of pair (i, i + d/2), i < d/2 with d = rotary_dims(head_dim), in sequences of `length` tokens: the angle at
// position p is p*f_i. Computed in f64, scaled as the rope type says.
std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, std::int64_t head_dim,
                                            std::int64_t length = 0);

}  // namespace mixtape
