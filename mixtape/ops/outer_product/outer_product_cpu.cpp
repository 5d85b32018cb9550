#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/outer_product/outer_product_cpu.cpp"
#include <algorithm>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/outer_product/outer_product_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class T>
void scaled_row(float factor, const T* b, T* y, std::size_t cols) {
  const Floats a = set(factor);
  for_each_step(cols, false,
                [&](std::size_t c, auto step) HWY_ATTR { step.store(hn::Mul(a, step.load(b + c)), y + c); });
}

template <class T>
void outer_product_forward(const HostCall& call) {
  const auto& p = call.params<OuterProductParams>();
  const T *a = call.read<T>(0), *b = call.read<T>(1);
  T* y = call.write<T>(0);
  cpu::parallel_for(p.batch * p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      scaled_row(static_cast<float>(a[r]), b + r / p.rows * p.cols, y + r * p.cols,
                 static_cast<std::size_t>(p.cols));
    }
  });
}
MIXTAPE_SIMD_KERNEL(outer_product_forward)

template <class T>
void outer_product_backward_a(const HostCall& call) {
  const auto& p = call.params<OuterProductParams>();
  const T *b = call.read<T>(0), *dy = call.read<T>(1);
  T* da = call.write<T>(0);
  cpu::parallel_for(p.batch * p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float d = dot_of(dy + r * p.cols, b + r / p.rows * p.cols, static_cast<std::size_t>(p.cols));
      da[r] = T(p.accumulate ? static_cast<float>(da[r]) + d : d);
    }
  });
}
MIXTAPE_SIMD_KERNEL(outer_product_backward_a)

// sum = the rows dy[i] * a[i] added up.
template <class T>
void sum_scaled_rows(const T* a, const T* dy, std::int64_t rows, std::int64_t stride, float* sum,
                     std::size_t cols) {
  for (std::size_t c = 0; c < cols; c += lanes()) {
    const std::size_t n = cols - c;
    Floats total = zero();
    for (std::int64_t i = 0; i < rows; ++i)
      total = hn::MulAdd(load(dy + i * stride + c, n), set(static_cast<float>(a[i])), total);
    store(total, sum + c, n);
  }
}

// x += y
void add_to(float* x, const float* y, std::size_t cols) {
  for_each_step(cols, false, [&](std::size_t c, auto step) HWY_ATTR {
    step.store(hn::Add(step.load(x + c), step.load(y + c)), x + c);
  });
}

template <class T>
void put_row(const float* sum, T* out, std::size_t cols, bool accumulate) {
  for_each_step(cols, false, [&](std::size_t c, auto step) HWY_ATTR {
    const Floats total = step.load(sum + c);
    step.store(accumulate ? hn::Add(step.load(out + c), total) : total, out + c);
  });
}

// Columns that a task takes: few enough that long vectors make many.
constexpr std::int64_t kColumns = 512;

template <class T>
void outer_product_backward_b(const HostCall& call) {
  const auto& p = call.params<OuterProductParams>();
  const T *a = call.read<T>(0), *dy = call.read<T>(1);
  T* db = call.write<T>(0);
  const std::int64_t tiles = (p.cols + kColumns - 1) / kColumns;
  const std::int64_t grain = std::max<std::int64_t>(1, cpu::row_grain(p.rows * std::min(p.cols, kColumns)));
  cpu::parallel_for(p.batch * tiles, grain, [&](std::int64_t begin, std::int64_t end) {
    float total[kColumns], block[kColumns];
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t t = task / tiles, first = task % tiles * kColumns;
      const auto cols = static_cast<std::size_t>(std::min(kColumns, p.cols - first));
      for (std::int64_t r = 0; r < p.rows; r += kOuterRows) {
        sum_scaled_rows(a + t * p.rows + r, dy + (t * p.rows + r) * p.cols + first,
                        std::min(kOuterRows, p.rows - r), p.cols, r == 0 ? total : block, cols);
        if (r > 0) add_to(total, block, cols);
      }
      put_row(total, db + t * p.cols + first, cols, p.accumulate != 0);
    }
  });
}
MIXTAPE_SIMD_KERNEL(outer_product_backward_b)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(outer_product_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(outer_product_backward_a)
MIXTAPE_REGISTER_SIMD_KERNEL(outer_product_backward_b)
}  // namespace mixtape
#endif
