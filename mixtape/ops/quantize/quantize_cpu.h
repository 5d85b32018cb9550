// Quantized rows in host memory, for host kernels that work block by block. All run on the calling thread.
#pragma once

#include "mixtape/ops/quantize/quantized_weight.h"
#include "mixtape/ops/quantize/scale_bits.h"
#include "mixtape/runtime/command_encoder.h"

// X(name and type of the weight, name and type of its scales)
#define MIXTAPE_QUANTIZE_PAIRS(X) \
  X(f32, float, f32, float)       \
  X(f32, float, bf16, bf16)       \
  X(f32, float, f16, f16)         \
  X(bf16, bf16, f32, float)       \
  X(bf16, bf16, bf16, bf16)       \
  X(bf16, bf16, f16, f16)         \
  X(f16, f16, f32, float)         \
  X(f16, f16, bf16, bf16)         \
  X(f16, f16, f16, f16)

namespace mixtape::cpu {

// Leading dimensions are folded into `rows`: stacked experts [E,N,K] have E*N rows.
struct QuantizedRows {
  // Scales and biases may be null where only codes are read.
  explicit QuantizedRows(const QuantizedWeight& w);
  const std::uint32_t* words;    // [rows, params.packed_cols(cols)]
  const void* scales = nullptr;  // [rows, params.groups(cols)], as the biases
  const void* biases = nullptr;
  DType scale_dtype = DType::f32;
  std::int64_t rows, cols;
  AffineParams params;
};

// Rows [begin, end) to out [end - begin, cols]: fma(code, scale, bias) in f32, rounded once.
void dequantize_rows(const QuantizedRows& w, std::int64_t begin, std::int64_t end, float* out);
void dequantize_rows(const QuantizedRows& w, std::int64_t begin, std::int64_t end, bf16* out);
void dequantize_rows(const QuantizedRows& w, std::int64_t begin, std::int64_t end, f16* out);

// Where the gradients of scales and biases go, [rows, groups]. A null pointer is skipped.
struct ScaleGradients {
  void* dscales = nullptr;
  void* dbiases = nullptr;
  DType dtype = DType::f32;
  Accumulate accumulate_scales = Accumulate::no;
  Accumulate accumulate_biases = Accumulate::no;
};
// Those that a call writes.
ScaleGradients scale_gradients(const HostCall& call, const ScaleBits& out);

// From dw [end - begin, cols], the gradient of rows [begin, end): per group dscale = sum dw*code and
// dbias = sum dw, in f32, rounded once. Of `w` only codes are read.
void reduce_rows(const QuantizedRows& w, std::int64_t begin, std::int64_t end, const float* dw,
                 const ScaleGradients& out);
void reduce_rows(const QuantizedRows& w, std::int64_t begin, std::int64_t end, const bf16* dw,
                 const ScaleGradients& out);
void reduce_rows(const QuantizedRows& w, std::int64_t begin, std::int64_t end, const f16* dw,
                 const ScaleGradients& out);

}  // namespace mixtape::cpu
