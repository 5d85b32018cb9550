#pragma once

#include "mixtape/ops/cholesky/cholesky_params.h"

namespace mixtape {

// Rows [begin, begin + rows) of the factor.
struct CholeskyGpuParams {
  std::int64_t size;
  std::int64_t begin;
  std::int32_t rows;
  std::uint32_t is_first;  // the last rows: no pivot was seen before
};

}  // namespace mixtape
