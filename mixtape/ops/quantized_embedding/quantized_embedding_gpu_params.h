#pragma once

#include "mixtape/ops/embedding/embedding_params.h"

namespace mixtape {

struct QuantizedRowsParams {
  EmbeddingParams lookup;
  std::int32_t bits;
  std::int32_t group_shift;  // log2(group size / kCodesAtOnce)
  std::uint32_t wants_scales;
  std::uint32_t wants_biases;
  std::uint32_t accumulate_scales;
  std::uint32_t accumulate_biases;
};

}  // namespace mixtape
