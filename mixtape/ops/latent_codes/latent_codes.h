// A weight whose affine codes learn: u holds them as real numbers that are rounded on the way to the weight
// (straight-through estimator). affine.h has the format.
//   q[r,c] = clamp(round(u[r,c]), 0, 2^bits-1)        w[r,c] = fma(q[r,c], scales[r,c/g], biases[r,c/g])
//   du[r,c] = dw[r,c]*scales[r,c/g] where -0.5 <= u[r,c] <= 2^bits-0.5, else 0
//   dscales[r,j] = sum over c of group j of dw[r,c]*q[r,c]        dbiases[r,j] = sum of dw[r,c]
// Shapes: u, du f32 [..., cols], cols a multiple of the group size g; scales, biases, dscales, dbiases f32
//   [..., cols/g]; w, dw f32, bf16 or f16 [..., cols]; codes u32 [..., cols/32*bits].
// Saved for backward: u and scales.
// Deterministic: w, dscales and dbiases have the bits that dequantize_affine gives for the packed codes.
// Edges: halves round to even. Infinite u are clamped. A NaN in u counts as code 0 without a gradient; packing
//   refuses it.
// Accuracy: codes are exact; w is one f32 fma rounded once; du one f32 product; dscales and dbiases
//   0.51 units + (g/4 + 4) * 2^-24 * sum |dw*q|.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, bits, group size, an empty
//   row; when packing, at wait for the first NaN, with row and column.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/ops/quantize/affine.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

void latent_codes_forward(CommandEncoder& encoder, const Buffer& u, const Buffer& scales,
                          const Buffer& biases, const Buffer& w, AffineParams params);

// Each gradient may be left out. du may be dw.
void latent_codes_backward(CommandEncoder& encoder, const Buffer& dw, const Buffer& u, const Buffer& scales,
                           const Backward::Target& du, const Backward::Target& dscales,
                           const Backward::Target& dbiases, AffineParams params);

// The codes q as dequantize_affine takes them.
void pack_codes_forward(CommandEncoder& encoder, const Buffer& u, const Buffer& codes, AffineParams params);

// The weight in `dtype`; its gradient goes to u, scales and biases.
Var latent_codes(const Var& u, const Var& scales, const Var& biases, AffineParams params, DType dtype);

}  // namespace mixtape
