#include <algorithm>
#include <cmath>
#include <numbers>

#include "mixtape/io/rope_config.h"

namespace mixtape {
namespace {

double llama3_frequency(double frequency, const RopeConfig& rope) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const auto length = static_cast<double>(rope.original_max_position_embeddings);
  if (wavelength < length / rope.high_freq_factor) return frequency;
  if (wavelength > length / rope.low_freq_factor) return frequency / rope.factor;
  const double s =
      (length / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - s) * frequency / rope.factor + s * frequency;
}

// The pairs, as real numbers, between which yarn goes over from one frequency to the other.
struct YarnRange {
  double begin, end;
};

YarnRange yarn_range(const RopeConfig& rope, std::int64_t dims) {
  const auto length = static_cast<double>(rope.original_max_position_embeddings);
  // The pair that turns so many times within the original length.
  const auto pair = [&](double turns) {
    return static_cast<double>(dims) * std::log(length / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  YarnRange range{pair(rope.beta_fast), pair(rope.beta_slow)};
  if (rope.truncate) range = {std::floor(range.begin), std::ceil(range.end)};
  range = {std::max(range.begin, 0.0), std::min(range.end, static_cast<double>(dims - 1))};
  constexpr double kLeast = 0.001;  // transformers': pairs on both sides of a point
  if (range.begin == range.end) range.end += kLeast;
  return range;
}

double yarn_frequency(double frequency, const RopeConfig& rope, std::int64_t dims, std::int64_t i) {
  const YarnRange range = yarn_range(rope, dims);
  const double scaled =
      std::clamp((static_cast<double>(i) - range.begin) / (range.end - range.begin), 0.0, 1.0);
  return frequency / rope.factor * scaled + frequency * (1.0 - scaled);
}

}  // namespace

double yarn_attention_factor(double factor) { return factor <= 1.0 ? 1.0 : 0.1 * std::log(factor) + 1.0; }

double longrope_attention_factor(double length, double original) {
  return length <= original ? 1.0 : std::sqrt(1.0 + std::log(length / original) / std::log(original));
}

std::int64_t RopeConfig::rotary_dims(std::int64_t head_dim) const {
  return static_cast<std::int64_t>(static_cast<double>(head_dim) * partial_rotary_factor);
}

std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, std::int64_t head_dim,
                                            std::int64_t length) {
  const std::int64_t dims = rope.rotary_dims(head_dim);
  const std::vector<double>& divisors = rope.is_long(length) ? rope.long_factor : rope.short_factor;
  // Before it is rounded to f32.
  const auto scaled = [&](double frequency, std::int64_t i) {
    switch (rope.type) {
      case RopeType::plain:
      case RopeType::dynamic:  // up to the original length
        return frequency;
      case RopeType::linear:
        return frequency / rope.factor;
      case RopeType::llama3:
        return llama3_frequency(frequency, rope);
      case RopeType::yarn:
        return yarn_frequency(frequency, rope, dims, i);
      case RopeType::longrope:
        return frequency / divisors[static_cast<std::size_t>(i)];
    }
    return frequency;
  };
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < dims / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(dims);
    frequencies.push_back(static_cast<float>(scaled(std::pow(rope.theta, exponent), i)));
  }
  return frequencies;
}

}  // namespace mixtape
