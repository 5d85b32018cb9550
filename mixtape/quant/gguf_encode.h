// Bytes of GGUF tensors, made from codes or from values: those of a buffer on the host.
#pragma once

#include <cstdint>
#include <string>

#include "mixtape/io/gguf_blocks.h"
#include "mixtape/quant/weight_format.h"
#include "mixtape/runtime/buffer.h"

namespace mixtape {

// What a GGUF type could not hold of a model.
struct GgufLoss {
  std::int64_t scales = 0;   // scales and biases of groups that became f16
  std::int64_t inexact = 0;  // of these, those that f16 does not hold
  double largest = 0.0;      // relative error of an inexact one
  std::int64_t rounded_matrices =
      0;  // decoded and rounded again, in a type without room for their codes and biases
};

// That of blocks; of affine codes the smallest type of blocks of 32 that holds them: Q4_1 up to 4 bits, Q5_1 for 5. More bits have none; they
// are rounded again to Q8_0, exactly where each bias is -2^(bits-1) times its scale.
GgufType gguf_type_of(const WeightFormat& format);

// A weight [..., N, K] in the type gguf_type_of(format_of(weight)), row after row; groups of 64 and 128 repeat their scale.
// Throws invalid_argument, naming `name`, for a scale or bias that f16 overflows.
Buffer gguf_bytes(const std::string& name, const QuantizedWeight& weight, GgufLoss& loss);

// Values as F32, F16 or BF16. Throws invalid_argument, naming `name`, for one that overflows.
Buffer gguf_bytes(const std::string& name, GgufType type, const Buffer& values);

// Rows, or elements of a bias, in the order of the file (gguf_row), of a tensor of `rows` of them.
Buffer in_gguf_order(const Buffer& bytes, std::int64_t rows, std::int64_t interleaved_heads);

}  // namespace mixtape
