#pragma once

#include <cstdint>

namespace mixtape {

// Elements of a block, the unit of work: what a block sums does not depend on threads.
inline constexpr std::int64_t kAdamBlock = 32768;

struct AdamParams {
  float beta1;
  float beta2;
  float one_minus_beta1;
  float one_minus_beta2;
  float correction1;  // 1 / (1 - beta1^step)
  float correction2;  // 1 / (1 - beta2^step)
  float eps;
  float lr;
  float keep;  // 1 - lr * weight_decay
  float grad_scale;
  std::uint32_t seed;  // of the step, for moments in bf16
};

constexpr std::uint32_t adam_seed(std::int64_t step) {
  return static_cast<std::uint32_t>(step) * 0xC2B2AE3Du;
}
// An element's random bits, 16 for each moment, are these products' sum, then mixed: ^ >> 16, * kAdamMix0, ^ >> 13,
// * kAdamMix1, ^ >> 16 (MurmurHash3's finalizer).
inline constexpr std::uint32_t kAdamLow = 0x9E3779B1u, kAdamHigh = 0x85EBCA77u;  // of the index's halves
inline constexpr std::uint32_t kAdamMix0 = 0x85EBCA6Bu, kAdamMix1 = 0xC2B2AE35u;

}  // namespace mixtape
