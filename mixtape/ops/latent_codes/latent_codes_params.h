#pragma once

#include <cstdint>

#include "mixtape/core/error.h"
#include "mixtape/ops/quantize/affine.h"

namespace mixtape {

// Bits of `wanted` and `accumulate`.
inline constexpr std::uint32_t kLatentDu = 1, kLatentDscales = 2, kLatentDbiases = 4;

struct LatentCodesParams {
  std::int64_t count;  // of weights: rows are whole groups, so that all groups lie one after the other
  std::int64_t cols;
  AffineParams affine;
  std::uint32_t wanted;
  std::uint32_t accumulate;
};

// What packing does where u is NaN.
[[noreturn]] inline void refuse_nan(std::int64_t position, std::int64_t cols) {
  fail(ErrorCode::invalid_argument, "pack_codes: u at row ", position / cols, ", column ", position % cols,
       " is nan, expected a number");
}

}  // namespace mixtape
