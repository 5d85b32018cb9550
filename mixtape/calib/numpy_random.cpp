#include "mixtape/calib/numpy_random.h"

#include <bit>
#include <numeric>
#include <utility>

namespace mixtape {

NumpyRandom::NumpyRandom(std::uint32_t seed) {
  state_[0] = seed;
  for (std::uint32_t i = 1; i < kWords; ++i) {
    state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  }
}

void NumpyRandom::refill() {
  constexpr std::size_t kOffset = 397;
  for (std::size_t i = 0; i < kWords; ++i) {
    const std::uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % kWords] & 0x7fffffffu);
    state_[i] = state_[(i + kOffset) % kWords] ^ (y >> 1) ^ ((y & 1u) != 0 ? 0x9908b0dfu : 0u);
  }
  position_ = 0;
}

std::uint32_t NumpyRandom::next() {
  if (position_ == kWords) refill();
  std::uint32_t y = state_[position_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

// Uniform in 0 .. max: words under the smallest mask of ones that covers max, until one fits.
std::uint32_t NumpyRandom::bounded(std::uint32_t max) {
  if (max == 0) return 0;
  const std::uint32_t mask = 0xffffffffu >> std::countl_zero(max);
  while (true) {
    const std::uint32_t value = next() & mask;
    if (value <= max) return value;
  }
}

std::vector<std::uint32_t> NumpyRandom::permutation(std::uint32_t count) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  for (std::uint32_t i = count; i > 1; --i) std::swap(order[i - 1], order[bounded(i - 1)]);
  return order;
}

}  // namespace mixtape
