// Matrix products over oneDNN with the same bits for any number of threads.
//   c[m,n] (+)= op(a)[m,k] * op(b)[k,n]        op transposes where asked
// a, b, c are f32, bf16 or f16, in any mixture, row-major with their own row strides. Sums are f32, c is
// rounded once (accumulate: sum and old value are added in f32 before).
//
// oneDNN's own split depends on the number of threads, so it is only ever called on tiles, single-threaded.
// 16-bit operands are widened to f32 per tile, which is exact. Not so where both are bf16 and the processor's dot
// product of bf16 is twice as fast as its f32 units (has_fast_bf16): products are exact there too, sums are f32 as
// everywhere, but subnormals (below 1.2e-38) count as 0.
#pragma once

#include <cstdint>
#include <span>

#include "mixtape/core/dtype.h"

namespace mixtape::cpu {

struct Gemm {
  DType a = DType::f32;
  DType b = DType::f32;
  DType c = DType::f32;
  bool trans_a = false;  // a is stored [k,m]
  bool trans_b = false;  // b is stored [n,k]
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t lda = 0;  // elements between stored rows
  std::int64_t ldb = 0;
  std::int64_t ldc = 0;
  bool accumulate = false;
  // m or k change from call to call, as the rows of an expert do: products are made for a few sizes only. The
  // order of summing follows from the shape here too, but it may be another one.
  bool sizes_vary = false;
};

// One product, on the calling thread alone. m, n or k of 0 is fine (k = 0 gives 0).
void gemm_on_this_thread(const Gemm& gemm, const void* a, const void* b, void* c);

// AMD's with AVX-512, from Zen 4 on: 231 billion operations a second and core against 115 in f32. On Intel's without tile
// registers the f32 units were the faster ones.
bool has_fast_bf16();

struct GemmCall {
  Gemm gemm;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
};

// Independent products, their tiles spread over the threads. Outputs must not overlap.
void gemm(const Gemm& gemm, const void* a, const void* b, void* c);
void gemm_all(std::span<const GemmCall> calls);

}  // namespace mixtape::cpu
