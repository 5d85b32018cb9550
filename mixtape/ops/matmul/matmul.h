// Matrix product.
//   y = A * B (+ addend)        dA = dy * B^T        dB = A^T * dy        daddend = dy        A = a or a^T, B = b or b^T
// Shapes: A [.., m,k], B [.., k,n] with equal leading dimensions: y [.., m,n]. Or a not transposed, of any
//   rank from 2 up, and b of rank 2: the leading dimensions of a are folded into m, and those of dB summed
//   over. a and b f32, bf16 or f16, the same; y of that dtype or f32; da as a, db as b.
//   The addend as y.
// Products and sums in f32, outputs rounded once. On CPUs that multiply bf16 faster (backend/cpu/gemm.h) its
//   subnormals count as 0.
// Saved for backward: a, b.
// Deterministic: same bits for any thread count.
// Accuracy: 1 unit + (length of the sum) * 2^-24 * (sum of the magnitudes of the products and of the addend).
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, an output that
//   shares memory with an input.
#pragma once

#include <optional>

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

void matmul_forward(CommandEncoder& encoder, const Buffer& a, const Buffer& b, const Buffer& y,
                    bool trans_a = false, bool trans_b = false, const Buffer& addend = Buffer());

// Either gradient may be left out, and so may what the other one doesn't read: a without db, b without da.
// The flags are the forward product's.
void matmul_backward(CommandEncoder& encoder, const Buffer& a, const Buffer& b, const Buffer& dy,
                     const Backward::Target& da, const Backward::Target& db, bool trans_a = false,
                     bool trans_b = false);

// y in `out`, or in a's dtype. A null addend: none.
Var matmul(const Var& a, const Var& b, bool trans_a = false, bool trans_b = false,
           std::optional<DType> out = std::nullopt, const Var& addend = Var());

}  // namespace mixtape
