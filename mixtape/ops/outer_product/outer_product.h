// Outer product of two vectors, or of as many pairs as there are.
//   y[t,i,j] = a[t,i] * b[t,j]
//   da[t,i] = sum_j dy[t,i,j] * b[t,j]        db[t,j] = sum_i dy[t,i,j] * a[t,i]
// Shapes: a, da [..., n], b, db [..., m] with equal leading dimensions, y, dy [..., n, m]. f32, bf16, f16;
//   sums in f32, outputs rounded once.
// Saved for backward: a and b.
// Deterministic: db adds blocks of kOuterRows rows, then the blocks in order. NaN goes through.
// Accuracy (u = 2^-24): y half a unit; da 1 unit + (4 + m/32) u sum |dy*b|;
//   db 1 unit + (4 + kOuterRows + n/kOuterRows) u sum |dy*a|.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, or an empty dimension.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/ops/outer_product/outer_product_params.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

void outer_product_forward(CommandEncoder& encoder, const Buffer& a, const Buffer& b, const Buffer& y);

void outer_product_backward_a(CommandEncoder& encoder, const Buffer& b, const Buffer& dy, const Buffer& da,
                              Accumulate accumulate = Accumulate::no);
void outer_product_backward_b(CommandEncoder& encoder, const Buffer& a, const Buffer& dy, const Buffer& db,
                              Accumulate accumulate = Accumulate::no);

Var outer_product(const Var& a, const Var& b);

}  // namespace mixtape
