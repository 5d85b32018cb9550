// Weights to and from MLX affine codes; affine.h has the formulas and the packing.
//   w[r,c] = fma(code[r,c], scales[r,c/g], biases[r,c/g])
//   dscales[r,j] = sum over c of group j of dw[r,c]*code[r,c]        dbiases[r,j] = sum of dw[r,c]
// Shapes: w, dw [..., cols], cols a multiple of the group size g; codes u32 [..., cols/32*bits]; scales,
//   biases, dscales, dbiases [..., cols/g]. w f32, bf16 or f16; scales and biases share a dtype of these,
//   independent of w's.
// Saved for backward: codes.
// Deterministic. Quantizing has no gradient.
// Accuracy: quantize is exact to the bit, scales and biases rounded once to their dtype; w is one f32 fma
//   rounded once; gradients 0.51 units + (g/4 + 4) * 2^-24 * sum |dw*code|.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, bits, group size, an empty
//   row; at wait, for the first weight (or wmax - wmin of its group) that is not finite, with row and
//   column, and for a group whose scale or bias overflows the 16-bit dtype.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/ops/quantize/quantized_weight.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

// What quantizing a weight of this shape takes.
Shape packed_shape(const Shape& w, AffineParams params);
Shape scales_shape(const Shape& w, AffineParams params);
// Memory for that, with undefined contents.
QuantizedWeight alloc_quantized(const Device& device, const Shape& w, AffineParams format, DType scale_dtype);
// The shape that `q` decodes to; throws invalid_argument, naming `op`, unless its parts fit each other.
Shape dequantized_shape(const char* op, const QuantizedWeight& q);

void quantize_affine_forward(CommandEncoder& encoder, const Buffer& w, const QuantizedWeight& q,
                             Rounding rounding = Rounding::gpu);

void dequantize_affine_forward(CommandEncoder& encoder, const QuantizedWeight& q, const Buffer& w);

// Either gradient may be left out.
void dequantize_affine_backward(CommandEncoder& encoder, const QuantizedWeight& q, const Buffer& dw,
                                const Backward::Target& dscales, const Backward::Target& dbiases);

// The weight in `dtype`; its gradient goes to scales and biases.
Var dequantize_affine(const QuantizedVar& q, DType dtype);

}  // namespace mixtape
