// What GPU kernels of quantized weights take. A weight is one run of `count` elements: rows are whole groups.
#pragma once

#include <cstdint>

#include "mixtape/ops/quantize/scale_bits.h"

namespace mixtape {

// Neighbouring elements that one thread works on; their codes are `bits` bytes.
inline constexpr int kCodesAtOnce = 8;

struct QuantizeGpuParams {
  std::int64_t count;
  std::int32_t bits;
  std::int32_t group_threads;  // group size / kCodesAtOnce
  std::uint32_t rounds_to_even;
};

struct DequantizeGpuParams {
  std::int64_t count;
  std::int32_t group_shift;  // log2(group size / kCodesAtOnce)
};

struct ReduceCodesParams {
  std::int64_t count;
  std::int32_t group_shift;
  ScaleBits out;
};

}  // namespace mixtape
