// A weight as MLX affine codes of small weighted squared error; quantize/affine.h has the codec.
//   error of a group = sum over its columns c of h[c] (w[r,c] - (code[r,c]*scale + bias))^2
//   turn: code := clamp(round((w - bias)/scale), 0, 2^bits-1)
//         scale, bias := weighted least squares of w on the codes, the bias for the scale as it is stored
// A search of 123 turns: from MLX's own rule, from ranges between the extremes of the weights that count,
// either end drawn towards their weighted mean (fit_plan.h), then from the best. Scales and biases are rounded
// to their dtype before each turn. The pair of least error of all is stored, with its nearest codes, halves to
// even.
// Shapes: w f32 [..., N, K], K a multiple of the group size g, 32, 64 or 128; importance h f32 [K], or [E, K] with w
//   [E, N, K], or null: all count alike; codes u32 [..., N, K/32*bits]; scales, biases [..., N, K/g], both f32,
//   bf16 or f16.
// Saved for backward: nothing, the fit has no gradient.
// Deterministic: sums run over a group's columns in order, in f32, without fused products, so that the CPU and
//   GPUs give the same bits.
// Accuracy: a group's error, of what dequantize_affine gives in f32, is at most that of plain rounding
//   (quantize_affine to the same dtype), within 2^-16 relative and 2^-44 * sum h * max w^2, the rounding of f32
//   values. It is that of the same search in f64, within as much, but for groups where two pairs are equally
//   good.
// Edges: a group whose importance is all 0 counts alike. A weight of importance 0, or below 2^-148 of the
//   group's largest, takes the nearest code and has no say in scale and bias. Scales may be negative, never 0.
//   Without rows nothing is written.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, bits, group size, rows without
//   a weight; at wait, for the first importance that is negative or not finite, with its position; else for the
//   first weight (or wmax - wmin of its group) that is not finite, with row and column, and for a group for
//   which MLX's rule overflows the 16-bit dtype.
#pragma once

#include "mixtape/ops/quantize/quantized_weight.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

void fit_affine_forward(CommandEncoder& encoder, const Buffer& w, const Buffer& importance,
                        const QuantizedWeight& q);

}  // namespace mixtape
