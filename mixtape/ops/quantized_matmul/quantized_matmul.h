// Matrix product with a quantized weight, one matrix or one per expert; quantize/affine.h has the codes.
//   w[n,k] = fma(code[n,k], scales[n,k/g], biases[n,k/g])        y[t] = w x[t]        dx[t] = w^T dy[t]
//   Of one matrix y[t] = w x[t] + addend[t] too: daddend = dy, the addend as y.
//   dw = sum_t dy[t] x[t]^T
//   dscales[n,j] = sum_{k in group j} dw[n,k] code[n,k]        dbiases[n,j] = sum_{k in group j} dw[n,k]
// Shapes: x [..,K], y [..,N], codes u32 [N,K/32*bits], scales, biases [N,K/g].
//   With offsets u32 [E+1]: x [T,K] sorted by expert, y [T,N], codes, scales, biases with a leading E; rows
//   offsets[e] <= t < offsets[e+1] use matrix e.
//   x f32, bf16 or f16; y of that dtype or f32; scales and biases of any of the three, the same.
// The weight is decoded in blocks, on GPUs per call for experts, and dw exists in the same portions only; on GPUs few
//   rows meet it in registers.
// Products and sums in f32, outputs rounded once.
// Saved for backward: x, codes, scales, biases, offsets.
// Deterministic: same bits for any thread count. An expert without rows has gradients of exactly 0.
// Accuracy, with u = 2^-24:
//   y        1 unit + (K+2)u (sum|x w| + |addend|);
//   dx       1 unit + (N+2)u sum|dy w|;
//   dscales  1 unit + (T+g+4)u sum|dy x code|;
//   dbiases  1 unit + (T+g+4)u sum|dy x|.
//   Where a 16-bit x meets the weight in its dtype (on a GPU; in bf16 on CPUs that multiply it faster:
//   backend/cpu/gemm.h), unit/2 sum|x w| and unit/2 sum|dy w| more; in f16 a weight past 65504 is infinite on a GPU.
// Errors: invalid_argument for dtypes, shapes or devices that disagree, bits, group size, an empty weight;
//   index_out_of_range at wait unless offsets begin with 0, never fall and end with T: outputs are 0 then.
#pragma once

#include <optional>

#include "mixtape/autograd/tape.h"
#include "mixtape/ops/quantize/quantized_weight.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

// `offsets` is null for one matrix.
void quantized_matmul_forward(CommandEncoder& encoder, const Buffer& x, const QuantizedWeight& w,
                              const Buffer& offsets, const Buffer& y, const Buffer& addend = Buffer());

// Each gradient may be left out.
void quantized_matmul_backward(CommandEncoder& encoder, const Buffer& x, const QuantizedWeight& w,
                               const Buffer& offsets, const Buffer& dy, const Backward::Target& dx,
                               const Backward::Target& dscales, const Backward::Target& dbiases);

// y in `out`, or in x's dtype. A null addend: none.
Var quantized_matmul(const Var& x, const QuantizedVar& w, std::optional<DType> out = std::nullopt,
                     const Var& addend = Var());
Var grouped_quantized_matmul(const Var& x, const QuantizedVar& w, const Buffer& offsets,
                             std::optional<DType> out = std::nullopt);

}  // namespace mixtape
