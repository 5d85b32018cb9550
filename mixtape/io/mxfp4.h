// MXFP4: blocks of 32 four-bit floats (E2M1: a sign, two bits of exponent, one of mantissa) that share a power of two,
// which a byte (E8M0) holds plus 127.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace mixtape {

inline constexpr std::int64_t kMxfp4Block = 32;

// 255 stands for no number.
inline float mxfp4_scale(std::uint8_t scale) {
  return scale == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, scale - 127);
}

// The low four bits of `code`; times the scale exact in bf16.
inline float mxfp4_value(unsigned code) {
  constexpr float kMagnitudes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const float magnitude = kMagnitudes[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

}  // namespace mixtape
