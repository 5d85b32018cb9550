#pragma once

#include <cstdint>

namespace mixtape {

struct SamplingParams {
  std::int64_t rows;
  std::int64_t cols;
  float factor;              // log2(e) / temperature
  std::uint32_t cuts_tail;   // whether top_p is below 1
  std::uint64_t top_p;       // in units of 2^-64
  std::uint64_t top_k;       // 0: all
  std::uint64_t most_steps;  // of an entry that takes part, below 2^32
  std::uint64_t seed;        // mixed
  std::uint64_t step;
};

// How far below the largest an entry is, in units of 2^-26 of a halving. kNoSteps: too far to be drawn.
inline constexpr std::uint32_t kNoSteps = 0xffffffffu;
constexpr std::uint32_t draw_steps(float halvings) {
  return halvings < 41.0f ? static_cast<std::uint32_t>(halvings * 67108864.0f) : kNoSteps;
}

// 2^(40 - halvings), in integers. The polynomial's relative error is 9.4e-8.
constexpr std::uint64_t draw_weight(std::uint32_t steps) {
  const std::uint32_t whole = steps >> 26;
  if (whole > 40) return 0;
  const std::uint64_t part = static_cast<std::uint64_t>(steps & 0x3ffffffu) << 6;
  std::uint64_t sum = 4035806u;
  sum = 39487045u - ((sum * part) >> 32);
  sum = 237459814u - ((sum * part) >> 32);
  sum = 1031553340u - ((sum * part) >> 32);
  sum = 2977028413u - ((sum * part) >> 32);
  return ((static_cast<std::uint64_t>(1) << 40) - ((sum * part) >> 24)) >> whole;
}

// a * b / 2^64, rounded down.
constexpr std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
  const std::uint64_t low = a1 * b0 + ((a0 * b0) >> 32), high = a0 * b1 + (low & 0xffffffffu);
  return a1 * b1 + (low >> 32) + (high >> 32);
}

}  // namespace mixtape
