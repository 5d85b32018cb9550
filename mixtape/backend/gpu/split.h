// Products of an f32 matrix and a bf16 one on units for bf16: the f32 one is cut into three parts of 8 bits, which hold all
// of its 24, so that products stay exact and sums are f32's, as in a product in f32, at several times its rate.
#pragma once

#include "mixtape/backend/gpu/launcher.h"

namespace mixtape::gpu {

// Whether split_gemm does it: one product, a f32 and b bf16, which is not transposed, without an
// addend.
bool can_split(const Gemm& gemm, DType a, DType b);

// As mixed_gemm's product of `gemm`.
void split_gemm(const Call& call, Gemm gemm);

}  // namespace mixtape::gpu
