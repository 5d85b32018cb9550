#pragma once

#include "mixtape/backend/gpu/kernel_language.h"

namespace mixtape {

MIXTAPE_DEVICE float rstd_of(float sum_of_squares, std::int64_t cols, float eps) {
  return 1.0f / sqrt_f32(sum_of_squares / static_cast<float>(cols) + eps);
}

}  // namespace mixtape
