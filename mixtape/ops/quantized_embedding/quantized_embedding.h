// Rows of a quantized table by number; ops/quantize/affine.h has the codec.
//   y[b,h] = fma(code[ids[b],h], scales[ids[b],h/g], biases[ids[b],h/g])
//   dw[id,h] = sum over b with ids[b] == id of dy[b,h]
//   dscales[id,j] = sum over h of group j of dw[id,h]*code[id,h]        dbiases[id,j] = sum of dw[id,h]
// Shapes: codes u32 [rows, hidden/32*bits]; scales, biases, dscales, dbiases [rows, hidden/g], f32, bf16 or
//   f16, one dtype for all four; ids u32 or i32 of any shape; y, dy [ids..., hidden], f32, bf16 or f16.
// dw is summed in embedding's order and kept for one row at a time. A row that no id names is +0, or
//   unchanged with Accumulate::yes.
// Saved for backward: codes and ids.
// Deterministic.
// Accuracy: y is one f32 fma rounded once; gradients of n occurrences 0.51 units
//   + (g/4 + 4 + min(n, kSegmentBlock) + n/kSegmentBlock) * 2^-24 * sum |dy*code|.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, bits, group size, or an empty
//   row or table; index_out_of_range at wait for an id outside the table: its row of y is 0, its gradient is
//   dropped.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/ops/quantize/quantized_weight.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

void quantized_embedding_forward(CommandEncoder& encoder, const QuantizedWeight& table, const Buffer& ids,
                                 const Buffer& y);

// Either gradient may be left out.
void quantized_embedding_backward(CommandEncoder& encoder, const QuantizedWeight& table, const Buffer& ids,
                                  const Buffer& dy, const Backward::Target& dscales,
                                  const Backward::Target& dbiases);

// The rows in `dtype`.
Var quantized_embedding(const QuantizedVar& table, const Buffer& ids, DType dtype);

}  // namespace mixtape
