#include "mixtape/core/random.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "mixtape/core/error.h"
#include "mixtape/core/mix.h"

namespace mixtape {
// The seed is mixed first, so that neighbouring seeds don't give shifted sequences.
std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index) {
  return mix_bits(mix_bits(seed) + index);
}

double uniform(std::uint64_t seed, std::uint64_t index) {
  return static_cast<double>(random_bits(seed, index) >> 11) * 0x1p-53;
}

// Draws below 2^64 mod limit are repeated, with bits of their own; what is left is a multiple of limit.
std::uint64_t uniform_index(std::uint64_t seed, std::uint64_t index, std::uint64_t limit) {
  require(limit > 0, "uniform_index: limit is 0, expected 1 or more");
  const std::uint64_t surplus = (0 - limit) % limit;
  std::uint64_t bits = random_bits(seed, index);
  while (bits < surplus) bits = mix_bits(bits + seed);
  return bits % limit;
}

double normal(std::uint64_t seed, std::uint64_t index) {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform(seed, 2 * index)));
  return radius * std::cos(6.283185307179586 * uniform(seed, 2 * index + 1));
}

std::vector<std::uint64_t> permutation(std::uint64_t seed, std::uint64_t count) {
  std::vector<std::uint64_t> order(count);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  for (std::uint64_t i = count; i > 1; --i) std::swap(order[i - 1], order[uniform_index(seed, i, i)]);
  return order;
}

}  // namespace mixtape
