// The mixing function behind core/random.h, for host and device code.
#pragma once

#include <cstdint>

namespace mixtape {

// SplitMix64's step: 64 well-mixed bits of x.
constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace mixtape
