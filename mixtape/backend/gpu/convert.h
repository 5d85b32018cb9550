// Value dtypes changed between launches: what a matrix product needs where its operands' dtypes differ.
#pragma once

#include "mixtape/backend/gpu/launcher.h"

namespace mixtape::gpu {

// y (+)= x. Dtypes that differ, one of them f32.
void convert(const Call& call, const Argument& x, DType from, const Argument& y, DType to, std::int64_t count,
             bool accumulate = false);

// An argument in another dtype, with the scratch memory behind it; the argument itself where the dtype is
// right.
struct Converted {
  Argument argument;
  std::shared_ptr<Memory> memory;
};
Converted in_dtype(const Call& call, const Argument& x, DType from, DType to, std::int64_t count);

// The product of operands of any two value dtypes. Both of one dtype: as it is; otherwise in f32, or
// as split.h says, so that nothing is rounded on the way. `gemm.in` is ignored.
void mixed_gemm(const Call& call, Gemm gemm, DType a, DType b);

}  // namespace mixtape::gpu
