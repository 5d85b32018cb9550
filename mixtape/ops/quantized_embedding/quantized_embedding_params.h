#pragma once

#include "mixtape/ops/embedding/embedding_params.h"
#include "mixtape/ops/quantize/affine.h"
#include "mixtape/ops/quantize/scale_bits.h"

namespace mixtape {

struct QuantizedEmbeddingParams {
  EmbeddingParams lookup;
  AffineParams affine;
  ScaleBits out;  // backward
};

}  // namespace mixtape
