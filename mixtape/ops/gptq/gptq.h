// Codes of a quantized weight with error feedback, scales and biases fixed: GPTQ in the order of the columns.
// quantize/affine.h has the codes.
//   for i = 0 .. K-1 of a row w, with s and b of i's group:
//   t[i] = w[i] + sum_{j<i} e[j] L[i,j] / L[i,i]        e[j] = w[j] - q[j]
//   code[i] = clamp(round((t[i] - b) / s), 0, 2^bits - 1)        q[i] = fma(code[i], s, b)
// With h = L^T L (cholesky) the row's error e h e^T is the sum of (L[i,i] (t[i] - q[i]))^2, and every column
// makes its term as small as the columns before it let it: Babai's nearest plane. That is what GPTQ does with
// the inverse of h; where L is diagonal it is rounding to nearest.
// Shapes: w f32 [..., N,K]; factor L f32 [..., K,K], lower triangular (what stands above the diagonal isn't
//   read), with the leading dimensions of w, or [K,K] for all of them; scales, biases [..., N,K/g], f32, bf16
//   or f16, the same; codes u32 [..., N,K/32*bits].
// Halves round to even. A scale of 0 gives code 0, and so does a t that is NaN; no row depends on another one.
// Saved for backward: nothing, there is no gradient.
// Deterministic: same bits for any thread count.
// Accuracy: products and sums in f32. A code is a nearest one to the t that the codes before it give, within
//   (i + 8) * 2^-23 * (|w[i]| + |b| + |q[i]| + sum_{j<i} (|e[j]| + |w[j]|) |L[i,j] / L[i,i]|) / |s|
//   code units. So the codes are those of exact arithmetic, but where a t lies that near to the middle between
//   two codes: either may be taken there, and the columns behind it make up for the one that was.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, bits, group size, or K of 0.
#pragma once

#include "mixtape/ops/quantize/quantized_weight.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

// Writes the codes of q, whose scales and biases are read.
void gptq_forward(CommandEncoder& encoder, const Buffer& w, const Buffer& factor, const QuantizedWeight& q);

}  // namespace mixtape
