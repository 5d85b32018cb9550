// Blocks of matrices between their storage type and f32.
#pragma once

#include <cstdint>

#include "mixtape/core/dtype.h"

namespace mixtape::cpu {

// dst[r * dst_stride + c] = src[r * src_stride + c] for f32, bf16 or f16 sources. Strides in elements.
void load_block(DType src_dtype, const void* src, std::int64_t src_stride, std::int64_t rows,
                std::int64_t cols, float* dst, std::int64_t dst_stride);

// The other way, rounded once; with `accumulate` the old value is added in f32 first.
void store_block(const float* src, std::int64_t src_stride, std::int64_t rows, std::int64_t cols,
                 DType dst_dtype, void* dst, std::int64_t dst_stride, bool accumulate);

// out[r * out_stride + c] = a[r] . b[c] (added to with `accumulate`): rows of an f32 matrix against rows of
// an f32, bf16 or f16 one, all of length `depth`.
void dot_block(const float* a, std::int64_t a_stride, std::int64_t rows, DType b_dtype, const void* b,
               std::int64_t b_stride, std::int64_t cols, std::int64_t depth, float* out,
               std::int64_t out_stride, bool accumulate);

// Element `index` of an array of that type.
inline const void* element(DType dtype, const void* base, std::int64_t index) {
  return static_cast<const std::byte*>(base) + index * static_cast<std::int64_t>(size_of(dtype));
}
inline void* element(DType dtype, void* base, std::int64_t index) {
  return static_cast<std::byte*>(base) + index * static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace mixtape::cpu
