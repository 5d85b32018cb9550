#pragma once

#include "mixtape/ops/embedding/embedding_params.h"
#include "mixtape/ops/quantize/affine.h"

namespace mixtape {

struct QuantizedEmbeddingParams {
  EmbeddingParams lookup;
  AffineParams affine;
  std::uint32_t wants_scales;
  std::uint32_t wants_biases;
  std::uint32_t accumulate_scales;
  std::uint32_t accumulate_biases;
};

}  // namespace mixtape
