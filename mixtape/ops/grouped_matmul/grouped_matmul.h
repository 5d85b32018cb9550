// Matrix product with one weight per expert, over rows that are sorted by expert.
//   y[t] = w[e] x[t]        dx[t] = w[e]^T dy[t]        dw[e] = sum_t dy[t] x[t]^T
//   for the rows offsets[e] <= t < offsets[e+1] of expert e
// Shapes: x, dx [T,K], w, dw [E,N,K], offsets u32 [E+1], y, dy [T,N]. x and w f32, bf16 or f16, the same;
//   y of that dtype or f32. Products and sums in f32, outputs rounded once.
// Saved for backward: x, w, offsets.
// Deterministic: same bits for any thread count. An expert without rows has a gradient of exactly 0.
// Accuracy: 1 unit + (length of the sum) * 2^-24 * (sum of the magnitudes of the products).
// Errors: invalid_argument for dtypes, shapes or devices that disagree, or an empty weight;
//   index_out_of_range at wait unless offsets begin with 0, never fall and end with T: outputs are 0 then.
#pragma once

#include <optional>

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

void grouped_matmul_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, const Buffer& offsets,
                            const Buffer& y);
// Either gradient may be left out, and so may what the other one doesn't read: x without dw, w without dx.
void grouped_matmul_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, const Buffer& offsets,
                             const Buffer& dy, const Backward::Target& dx, const Backward::Target& dw);

// Of two products of the same rows, dx = w1[e]^T dy1[t] + w2[e]^T dy2[t]: w1 and w2 alike, dy1 and dy2 alike. On GPUs one
// pass, rounded once; on the CPU one after the other, rounded after each.
void grouped_matmul_backward_pair(CommandEncoder& encoder, const Buffer& w1, const Buffer& dy1,
                                  const Buffer& w2, const Buffer& dy2, const Buffer& offsets,
                                  const Backward::Target& dx);

// y in `out`, or in x's dtype.
Var grouped_matmul(const Var& x, const Var& w, const Buffer& offsets,
                   std::optional<DType> out = std::nullopt);

}  // namespace mixtape
