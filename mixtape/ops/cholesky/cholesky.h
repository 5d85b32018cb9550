// Cholesky factor of a symmetric positive definite matrix, made from the last row up.
//   h = L^T L, L lower triangular        for i = K-1 .. 0:
//   d[i] = h[i,i] - sum_{l>i} L[l,i]^2        L[i,i] = sqrt(d[i])
//   L[i,j] = (h[i,j] - sum_{l>i} L[l,i] L[l,j]) / L[i,i], j < i
// This is the usual factor of h with its rows and columns in reverse order. L^-T is the upper factor U of
// h^-1 = U^T U, which GPTQ is usually written with: L needs no inverse.
// Shapes: h, factor f32 [..., K,K]; min_pivot f32 [...], [1] for rank 2. Only h's lower triangle is read; the
//   strictly upper part of the factor is 0. factor may be h itself.
// min_pivot is the smallest d[i] where all are above 0 and finite. Otherwise there is no factor: it is the
//   first d, from the last one on, that is 0 or below, or NaN where that one isn't finite, and the factor's
//   content is unspecified.
// Saved for backward: nothing, there is no gradient.
// Deterministic: same bits for any thread count.
// Accuracy: L^T L errs by (K + 4) * 2^-24 * sqrt(h[i,i] h[j,j]) in element i,j, whatever the rows' scales.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, or K of 0.
#pragma once

#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

void cholesky_forward(CommandEncoder& encoder, const Buffer& h, const Buffer& factor,
                      const Buffer& min_pivot);

}  // namespace mixtape
