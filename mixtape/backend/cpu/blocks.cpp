#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/backend/cpu/blocks.cpp"
#include "mixtape/backend/cpu/blocks.h"

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class S, class D>
void move_row(const S* src, D* dst, std::size_t n) {
  std::size_t i = 0;
  for (; i + lanes() <= n; i += lanes()) store(load(src + i), dst + i);
  if (i < n) store(load(src + i, n - i), dst + i, n - i);
}

template <class D>
void add_row(const float* src, D* dst, std::size_t n) {
  std::size_t i = 0;
  for (; i + lanes() <= n; i += lanes()) store(hn::Add(load(dst + i), load(src + i)), dst + i);
  if (i < n) store(hn::Add(load(dst + i, n - i), load(src + i, n - i)), dst + i, n - i);
}

template <class S>
void load_rows(const S* src, std::int64_t src_stride, std::int64_t rows, std::int64_t cols, float* dst,
               std::int64_t dst_stride) {
  for (std::int64_t r = 0; r < rows; ++r)
    move_row(src + r * src_stride, dst + r * dst_stride, static_cast<std::size_t>(cols));
}

template <class D>
void store_rows(const float* src, std::int64_t src_stride, std::int64_t rows, std::int64_t cols, D* dst,
                std::int64_t dst_stride, bool accumulate) {
  const auto n = static_cast<std::size_t>(cols);
  for (std::int64_t r = 0; r < rows; ++r) {
    if (accumulate) {
      add_row(src + r * src_stride, dst + r * dst_stride, n);
    } else {
      move_row(src + r * src_stride, dst + r * dst_stride, n);
    }
  }
}

void load_rows_f32(const float* src, std::int64_t src_stride, std::int64_t rows, std::int64_t cols,
                   float* dst, std::int64_t dst_stride) {
  load_rows(src, src_stride, rows, cols, dst, dst_stride);
}
void load_rows_bf16(const bf16* src, std::int64_t src_stride, std::int64_t rows, std::int64_t cols,
                    float* dst, std::int64_t dst_stride) {
  load_rows(src, src_stride, rows, cols, dst, dst_stride);
}
void store_rows_f32(const float* src, std::int64_t src_stride, std::int64_t rows, std::int64_t cols,
                    float* dst, std::int64_t dst_stride, bool accumulate) {
  store_rows(src, src_stride, rows, cols, dst, dst_stride, accumulate);
}
void store_rows_bf16(const float* src, std::int64_t src_stride, std::int64_t rows, std::int64_t cols,
                     bf16* dst, std::int64_t dst_stride, bool accumulate) {
  store_rows(src, src_stride, rows, cols, dst, dst_stride, accumulate);
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "mixtape/core/error.h"

namespace mixtape {
namespace {
HWY_EXPORT(load_rows_f32);
HWY_EXPORT(load_rows_bf16);
HWY_EXPORT(store_rows_f32);
HWY_EXPORT(store_rows_bf16);
}  // namespace

namespace cpu {

void load_block(DType src_dtype, const void* src, std::int64_t src_stride, std::int64_t rows,
                std::int64_t cols, float* dst, std::int64_t dst_stride) {
  if (src_dtype == DType::f32) {
    HWY_DYNAMIC_DISPATCH(load_rows_f32)
    (static_cast<const float*>(src), src_stride, rows, cols, dst, dst_stride);
  } else if (src_dtype == DType::bf16) {
    HWY_DYNAMIC_DISPATCH(load_rows_bf16)
    (static_cast<const bf16*>(src), src_stride, rows, cols, dst, dst_stride);
  } else {
    fail(ErrorCode::not_supported, "load_block: source is ", src_dtype, ", expected f32 or bf16");
  }
}

void store_block(const float* src, std::int64_t src_stride, std::int64_t rows, std::int64_t cols,
                 DType dst_dtype, void* dst, std::int64_t dst_stride, bool accumulate) {
  if (dst_dtype == DType::f32) {
    HWY_DYNAMIC_DISPATCH(store_rows_f32)
    (src, src_stride, rows, cols, static_cast<float*>(dst), dst_stride, accumulate);
  } else if (dst_dtype == DType::bf16) {
    HWY_DYNAMIC_DISPATCH(store_rows_bf16)
    (src, src_stride, rows, cols, static_cast<bf16*>(dst), dst_stride, accumulate);
  } else {
    fail(ErrorCode::not_supported, "store_block: destination is ", dst_dtype, ", expected f32 or bf16");
  }
}

}  // namespace cpu
}  // namespace mixtape
#endif
