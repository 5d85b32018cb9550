// Brain floating point: the upper 16 bits of an f32.
#pragma once

#include <bit>
#include <cstdint>

namespace mixtape {

struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  // Rounds to nearest even; every NaN becomes a quiet NaN of the same sign.
  explicit bf16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<std::uint16_t>((u >> 16) | 0x40u);
    } else {
      bits = static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
  friend bool operator==(bf16 a, bf16 b) { return a.bits == b.bits; }
};
static_assert(sizeof(bf16) == 2);

}  // namespace mixtape
