// Products of rows that are sorted by expert with a matrix per expert, where only the card knows how many
// rows each expert has.
#pragma once

#include "mixtape/backend/gpu/launcher.h"

namespace mixtape::gpu {

struct GroupedGemm {
  enum class Kind {
    rows,     // c[t,:] = a[t,:] b[e]: a [T,K], b [E,K,N] or, with trans_b, [E,N,K], c [T,N]
    weights,  // c[e] = sum_t a[t,:]^T b[t,:]: a [T,N], b [T,K], c [E,N,K]; 0 where an expert has no rows
  };
  Kind kind = Kind::rows;
  // a and b of one type and c of that or f32; or a f32, b bf16 or f16 and c as either.
  DType a_type = DType::f32, b_type = DType::f32, c_type = DType::f32;
  std::int64_t rows = 0;     // T
  std::int64_t experts = 0;  // E
  std::int64_t n = 0, k = 0;
  bool trans_b = false;
  bool accumulate = false;
  Argument a, b, c;
  Argument offsets;  // u32 [E+1]; expert e has the rows offsets[e] <= t < offsets[e+1]
  // Rows: a2[t,:] b2[e] is added, of the shapes and types of a and b, where they are not null.
  Argument a2 = {}, b2 = {};
};

// Sums in f32, rounded once, in an order that depends on the shapes and offsets alone. Offsets that do not
// begin with 0, fall, or do not end with T are reported; c is 0 then, or with `accumulate` unchanged.
void grouped_gemm(const Call& call, const GroupedGemm& gemm);

}  // namespace mixtape::gpu
