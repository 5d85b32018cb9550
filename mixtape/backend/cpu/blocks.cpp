#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/backend/cpu/blocks.cpp"
#include "mixtape/backend/cpu/blocks.h"

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class S, class D>
void move_row(const S* src, D* dst, std::size_t n) {
  for_each_step(n, false,
                [&](std::size_t i, auto step) HWY_ATTR { step.store(step.load(src + i), dst + i); });
}

template <class D>
void add_row(const float* src, D* dst, std::size_t n) {
  for_each_step(n, false, [&](std::size_t i, auto step) HWY_ATTR {
    step.store(hn::Add(step.load(dst + i), step.load(src + i)), dst + i);
  });
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

template <class B>
void dot_rows(const float* a, std::int64_t a_stride, std::int64_t rows, const B* b, std::int64_t b_stride,
              std::int64_t cols, std::int64_t depth, float* out, std::int64_t out_stride, bool accumulate) {
  for (std::int64_t c = 0; c < cols; ++c) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const float sum = dot_of(a + r * a_stride, b + c * b_stride, static_cast<std::size_t>(depth));
      float& to = out[r * out_stride + c];
      to = accumulate ? to + sum : sum;
    }
  }
}

void dot_rows_f32(const float* a, std::int64_t a_stride, std::int64_t rows, const float* b,
                  std::int64_t b_stride, std::int64_t cols, std::int64_t depth, float* out,
                  std::int64_t out_stride, bool accumulate) {
  dot_rows(a, a_stride, rows, b, b_stride, cols, depth, out, out_stride, accumulate);
}
void dot_rows_bf16(const float* a, std::int64_t a_stride, std::int64_t rows, const bf16* b,
                   std::int64_t b_stride, std::int64_t cols, std::int64_t depth, float* out,
                   std::int64_t out_stride, bool accumulate) {
  dot_rows(a, a_stride, rows, b, b_stride, cols, depth, out, out_stride, accumulate);
}
void dot_rows_f16(const float* a, std::int64_t a_stride, std::int64_t rows, const f16* b,
                  std::int64_t b_stride, std::int64_t cols, std::int64_t depth, float* out,
                  std::int64_t out_stride, bool accumulate) {
  dot_rows(a, a_stride, rows, b, b_stride, cols, depth, out, out_stride, accumulate);
}
void load_rows_f32(const float* src, std::int64_t src_stride, std::int64_t rows, std::int64_t cols,
                   float* dst, std::int64_t dst_stride) {
  load_rows(src, src_stride, rows, cols, dst, dst_stride);
}
void load_rows_bf16(const bf16* src, std::int64_t src_stride, std::int64_t rows, std::int64_t cols,
                    float* dst, std::int64_t dst_stride) {
  load_rows(src, src_stride, rows, cols, dst, dst_stride);
}
void load_rows_f16(const f16* src, std::int64_t src_stride, std::int64_t rows, std::int64_t cols, float* dst,
                   std::int64_t dst_stride) {
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
void store_rows_f16(const float* src, std::int64_t src_stride, std::int64_t rows, std::int64_t cols, f16* dst,
                    std::int64_t dst_stride, bool accumulate) {
  store_rows(src, src_stride, rows, cols, dst, dst_stride, accumulate);
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "mixtape/core/error.h"

namespace mixtape {
namespace {
HWY_EXPORT(dot_rows_f32);
HWY_EXPORT(dot_rows_bf16);
HWY_EXPORT(dot_rows_f16);
HWY_EXPORT(load_rows_f32);
HWY_EXPORT(load_rows_bf16);
HWY_EXPORT(load_rows_f16);
HWY_EXPORT(store_rows_f32);
HWY_EXPORT(store_rows_bf16);
HWY_EXPORT(store_rows_f16);
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
  } else if (src_dtype == DType::f16) {
    HWY_DYNAMIC_DISPATCH(load_rows_f16)
    (static_cast<const f16*>(src), src_stride, rows, cols, dst, dst_stride);
  } else {
    fail(ErrorCode::not_supported, "load_block: source is ", src_dtype, ", expected f32, bf16 or f16");
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
  } else if (dst_dtype == DType::f16) {
    HWY_DYNAMIC_DISPATCH(store_rows_f16)
    (src, src_stride, rows, cols, static_cast<f16*>(dst), dst_stride, accumulate);
  } else {
    fail(ErrorCode::not_supported, "store_block: destination is ", dst_dtype, ", expected f32, bf16 or f16");
  }
}

void dot_block(const float* a, std::int64_t a_stride, std::int64_t rows, DType b_dtype, const void* b,
               std::int64_t b_stride, std::int64_t cols, std::int64_t depth, float* out,
               std::int64_t out_stride, bool accumulate) {
  if (b_dtype == DType::f32) {
    HWY_DYNAMIC_DISPATCH(dot_rows_f32)
    (a, a_stride, rows, static_cast<const float*>(b), b_stride, cols, depth, out, out_stride, accumulate);
  } else if (b_dtype == DType::bf16) {
    HWY_DYNAMIC_DISPATCH(dot_rows_bf16)
    (a, a_stride, rows, static_cast<const bf16*>(b), b_stride, cols, depth, out, out_stride, accumulate);
  } else if (b_dtype == DType::f16) {
    HWY_DYNAMIC_DISPATCH(dot_rows_f16)
    (a, a_stride, rows, static_cast<const f16*>(b), b_stride, cols, depth, out, out_stride, accumulate);
  } else {
    fail(ErrorCode::not_supported, "dot_block: b is ", b_dtype, ", expected f32, bf16 or f16");
  }
}

}  // namespace cpu
}  // namespace mixtape
#endif
