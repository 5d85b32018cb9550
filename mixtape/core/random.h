// Random numbers that are the same on every machine, and need no state: a number is a function of a seed and
// a position (SplitMix64's mixing function over a counter).
#pragma once

#include <cstdint>
#include <vector>

namespace mixtape {

// 64 well-mixed bits.
std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index);

// Uniform in [0, 1): a multiple of 2^-53.
double uniform(std::uint64_t seed, std::uint64_t index);

// Uniform in 0 .. limit-1, each exactly as likely. Throws invalid_argument for limit 0.
std::uint64_t uniform_index(std::uint64_t seed, std::uint64_t index, std::uint64_t limit);

// Normally distributed, mean 0, standard deviation 1 (Box-Muller; the digits past 1e-15 depend on the C
// library).
double normal(std::uint64_t seed, std::uint64_t index);

// 0 .. count-1 in random order (Fisher-Yates).
std::vector<std::uint64_t> permutation(std::uint64_t seed, std::uint64_t count);

}  // namespace mixtape
