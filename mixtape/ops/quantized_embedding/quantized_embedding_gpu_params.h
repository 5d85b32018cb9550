#pragma once

#include "mixtape/ops/embedding/embedding_params.h"
#include "mixtape/ops/quantize/scale_bits.h"

namespace mixtape {

struct QuantizedRowsParams {
  EmbeddingParams lookup;
  std::int32_t bits;
  std::int32_t group_shift;  // log2(group size / kCodesAtOnce)
  ScaleBits out;
};

}  // namespace mixtape
