// IEEE 754 half precision.
#pragma once

#include <bit>
#include <cstdint>

namespace mixtape {

struct f16 {
  std::uint16_t bits = 0;

  f16() = default;
  // Rounds to nearest even, keeps subnormals, overflows to infinity; a NaN stays a quiet NaN.
  explicit f16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
    const std::uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
      bits = static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
    } else if (magnitude >= 0x477ff000u) {  // 65520 and more round to infinity
      bits = static_cast<std::uint16_t>(sign | 0x7c00u);
    } else if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 aligns the subnormal's last bit
      const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
      bits = static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u));
    } else {
      const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
      bits = static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
    }
  }
  explicit operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    // Shift the fields into f32 position, then rescale by 2^112: exact for normal and subnormal values.
    const float scaled = std::bit_cast<float>(magnitude << 13) * std::bit_cast<float>(0x77800000u);
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
  }
  friend bool operator==(f16 a, f16 b) { return a.bits == b.bits; }
};
static_assert(sizeof(f16) == 2);

}  // namespace mixtape
