#pragma once

#include <cstdint>

#include "mixtape/ops/quantize/affine.h"

namespace mixtape {

struct GptqParams {
  std::int64_t batch;  // matrices L
  std::int64_t rows;   // of w for each of them
  std::int64_t cols;   // K
  AffineParams format;
};

}  // namespace mixtape
