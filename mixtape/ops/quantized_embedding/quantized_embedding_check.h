// The cases that quantized_embedding is checked with.
#pragma once

#include <vector>

#include "mixtape/ops/quantize/affine.h"
#include "mixtape/testing/op_check.h"

namespace mixtape {

struct QuantizedEmbeddingCase {
  DType dtype;
  DType scale_dtype;
  std::int64_t rows;
  std::int64_t hidden;
  AffineParams params;
  testing::HostTensor ids;
};

testing::OpCheck quantized_embedding_check(const Device& device, const QuantizedEmbeddingCase& c);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> quantized_embedding_checks(const Device& device, DType dtype);

}  // namespace mixtape
