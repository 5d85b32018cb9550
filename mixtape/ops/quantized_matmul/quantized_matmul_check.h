// The cases that quantized_matmul is checked with.
#pragma once

#include <vector>

#include "mixtape/ops/grouped_matmul/grouped_matmul_check.h"
#include "mixtape/ops/quantize/affine.h"

namespace mixtape {

struct QuantizedMatmulCase {
  oracle::GroupedMatmulCase sizes;
  AffineParams format;
  DType x = DType::f32;
  DType scales = DType::f32;
  DType y = DType::f32;
  bool is_grouped = false;
};

// x, codes, scales, biases.
std::vector<testing::HostTensor> inputs_of(const QuantizedMatmulCase& c);
// Of a weight that a product meets in x's dtype, on GPUs.
double weight_rounding(const Device& device, const QuantizedMatmulCase& c);
// One check per differentiable input: each has its own bound.
std::vector<testing::OpCheck> quantized_matmul_case(const Device& device, const QuantizedMatmulCase& c);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> quantized_matmul_checks(const Device& device, DType dtype);
std::vector<testing::OpCheck> grouped_quantized_matmul_checks(const Device& device, DType dtype);

}  // namespace mixtape
