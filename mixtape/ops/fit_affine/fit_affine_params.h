#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "mixtape/core/dtype.h"
#include "mixtape/ops/fit_affine/fit_plan.h"
#include "mixtape/ops/quantize/affine.h"
#include "mixtape/runtime/buffer.h"

namespace mixtape {

struct FitAffineParams {
  std::int64_t experts;  // rows of importance: 1 where all of w shares it
  std::int64_t rows;     // of w for each of them
  std::int64_t cols;
  AffineParams affine;
  std::uint32_t has_importance;
  float drop;   // fit_drop
  float nudge;  // three quarters of the unit of the scales' dtype
};

// Few codes are best spent on the bulk of the weights, many reach its ends: the least fraction is 0.35 with 2
// bits (of normal weights the best range is that of 0.6), 0.75 with 4, and within 4 steps of a code from 1.
inline float fit_drop(std::int32_t bits) {
  return std::min(0.65f, 4.0f / static_cast<float>(1 << bits)) / static_cast<float>(kFractions - 1);
}

// The power of two at or below a magnitude, and its inverse: both normal.
struct PowerOfTwo {
  float value, inverse;
};
inline PowerOfTwo power_of_two(float magnitude) {
  const std::uint32_t exponent = std::clamp(std::bit_cast<std::uint32_t>(magnitude) >> 23, 7u, 253u);
  return {std::bit_cast<float>(exponent << 23), std::bit_cast<float>((254u - exponent) << 23)};
}

// Of importance: one row for all of w, or one for each expert. Throws invalid_argument, naming `op`, where they don't
// fit each other.
std::int64_t importance_rows(const char* op, const Buffer& w, const Buffer& importance);

// Throw invalid_argument. Positions count all elements of importance; row and column are of w.
[[noreturn]] void refuse_importance(std::int64_t position, float value);
[[noreturn]] void refuse_overflow(std::int64_t row, std::int64_t col, DType dtype);

}  // namespace mixtape
