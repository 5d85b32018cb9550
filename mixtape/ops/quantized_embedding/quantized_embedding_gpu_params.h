#pragma once

#include "mixtape/ops/embedding/embedding_params.h"
#include "mixtape/ops/quantize/scale_bits.h"

namespace mixtape {

// Neighbouring rows of the table that a warp goes through.
inline constexpr int kRowsOfWarp = 4;

struct QuantizedRowsParams {
  EmbeddingParams lookup;
  std::int32_t bits;
  std::int32_t group_shift;  // log2(group size / kCodesAtOnce)
  ScaleBits out;
};

}  // namespace mixtape
