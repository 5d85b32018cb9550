#pragma once

#include "mixtape/ops/quantize/quantize_gpu_params.h"

namespace mixtape {

struct LatentForwardParams {
  DequantizeGpuParams groups;
  float largest;  // code
};

struct LatentBackwardParams {
  ReduceCodesParams groups;
  float largest;
  std::uint32_t wants_u;
  std::uint32_t accumulate_u;
};

struct PackCodesParams {
  std::int64_t count;
  std::int32_t bits;
  float largest;
};

}  // namespace mixtape
