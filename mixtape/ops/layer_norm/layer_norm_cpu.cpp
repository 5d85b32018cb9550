#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/layer_norm/layer_norm_cpu.cpp"
#include <algorithm>
#include <cmath>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/rows-inl.h"
#include "mixtape/ops/layer_norm/layer_norm_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// sum (x - mean)^2.
template <class T>
float squares_of(const T* x, std::size_t n, float mean) {
  RowSum sum;
  for_each_step(n, false, [&](std::size_t i, auto step) MIXTAPE_SUM_ATTR {
    const Floats d = step.pad(hn::Sub(step.reload(x + i), set(mean)), zero());
    sum.add_product(d, d);
  });
  return sum.total();
}

// y = (x - mean) * rstd * w + b, w and b where they are there.
template <class T>
void norm_row(const T* x, const T* w, const T* b, T* y, std::size_t n, float eps, float* stats,
              bool is_large) {
  const auto count = static_cast<float>(n);
  const float mean = sum_of(x, n) / count, rstd = 1.0f / std::sqrt(squares_of(x, n, mean) / count + eps);
  for_each_step(n, is_large, [&](std::size_t i, auto step) HWY_ATTR {
    Floats v = hn::Mul(hn::Sub(step.reload(x + i), set(mean)), set(rstd));
    if (w != nullptr) v = hn::Mul(v, step.reload(w + i));
    if (b != nullptr) v = hn::Add(v, step.reload(b + i));
    step.store(v, y + i);
  });
  stats[0] = mean;
  stats[1] = rstd;
}

template <class T>
void layer_norm_forward(const HostCall& call) {
  const auto& p = call.params<LayerNormParams>();
  const T* x = call.read<T>(0);
  const T* w = p.has_weight ? call.read<T>(1) : nullptr;
  const T* b = p.has_bias ? call.read<T>(1 + p.has_weight) : nullptr;
  T* y = call.write<T>(0);
  auto* stats = call.write<float>(1);
  const bool is_large = streams(y, p.rows, p.cols);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      norm_row(x + r * p.cols, w, b, y + r * p.cols, static_cast<std::size_t>(p.cols), p.eps, stats + 2 * r,
               is_large);
  });
}
MIXTAPE_SIMD_KERNEL(layer_norm_forward)

// One row of the backward. dw and db, where they are there, are shares of a block of rows.
template <class T>
struct LayerNormBackward {
  const T *x, *w, *dy;
  T* dx;
  float *dw, *db;
  std::size_t n;
  float mean, rstd;

  template <class Step>
  HWY_INLINE Floats normed(std::size_t i, Step step) const {
    return hn::Mul(hn::Sub(step.reload(x + i), set(mean)), set(rstd));
  }
  template <class Step>
  HWY_INLINE Floats weighted(std::size_t i, Step step) const {
    const Floats d = step.reload(dy + i);
    return w != nullptr ? hn::Mul(d, step.reload(w + i)) : d;
  }
};

template <class T>
void add_parameter_shares(const LayerNormBackward<T>& row) {
  for_each_step(row.n, false, [&](std::size_t i, auto step) HWY_ATTR {
    const Floats d = step.reload(row.dy + i);
    if (row.dw != nullptr) step.keep(hn::MulAdd(d, row.normed(i, step), step.reload(row.dw + i)), row.dw + i);
    if (row.db != nullptr) step.keep(hn::Add(d, step.reload(row.db + i)), row.db + i);
  });
}

template <class T>
void input_gradient(const LayerNormBackward<T>& row, bool accumulate, bool is_large) {
  RowSum gradients, products;
  for_each_step(row.n, false, [&](std::size_t i, auto step) MIXTAPE_SUM_ATTR {
    const Floats g = row.weighted(i, step);  // 0 beyond the end
    gradients.add(g);
    products.add_product(g, row.normed(i, step));
  });
  const auto count = static_cast<float>(row.n);
  const float mean_g = gradients.total() / count, mean_gh = products.total() / count;
  for_each_step(row.n, is_large, [&](std::size_t i, auto step) HWY_ATTR {
    const Floats centered = hn::Sub(row.weighted(i, step), set(mean_g));
    const Floats d = hn::Mul(set(row.rstd), hn::NegMulAdd(row.normed(i, step), set(mean_gh), centered));
    step.store(accumulate ? hn::Add(step.reload(row.dx + i), d) : d, row.dx + i);
  });
}

// out = (out if accumulate) + the blocks' shares, one after the other.
template <class T>
void add_shares(const std::vector<float>& shares, std::int64_t blocks, std::int64_t cols, T* out,
                bool accumulate) {
  for_each_step(static_cast<std::size_t>(cols), false, [&](std::size_t i, auto step) HWY_ATTR {
    Floats sum = zero();
    for (std::int64_t b = 0; b < blocks; ++b) sum = hn::Add(sum, step.reload(shares.data() + b * cols + i));
    step.store(accumulate ? hn::Add(step.reload(out + i), sum) : sum, out + i);
  });
}

template <class T>
void layer_norm_backward(const HostCall& call) {
  const auto& p = call.params<LayerNormParams>();
  const T *x = call.read<T>(0), *dy = call.read<T>(2);
  const auto* stats = call.read<float>(1);
  const T* w = p.has_weight ? call.read<T>(3) : nullptr;
  T* dx = call.write_if<T>(p.wanted, kLayerNormDx);
  T* dw = call.write_if<T>(p.wanted, kLayerNormDw);
  T* db = call.write_if<T>(p.wanted, kLayerNormDb);
  const std::int64_t blocks = (p.rows + p.row_block - 1) / p.row_block;
  std::vector<float> dw_shares(dw != nullptr ? static_cast<std::size_t>(blocks * p.cols) : 0);
  std::vector<float> db_shares(db != nullptr ? static_cast<std::size_t>(blocks * p.cols) : 0);
  const bool accumulate = (p.accumulate & kLayerNormDx) != 0;
  const bool is_large = dx != nullptr && !accumulate && streams(dx, p.rows, p.cols);
  cpu::parallel_for(p.rows, p.row_block, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t share = begin / p.row_block * p.cols;
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t at = r * p.cols;
      const LayerNormBackward<T> row{x + at,
                                     w,
                                     dy + at,
                                     dx != nullptr ? dx + at : nullptr,
                                     dw != nullptr ? dw_shares.data() + share : nullptr,
                                     db != nullptr ? db_shares.data() + share : nullptr,
                                     static_cast<std::size_t>(p.cols),
                                     stats[2 * r],
                                     stats[2 * r + 1]};
      if (dw != nullptr || db != nullptr) add_parameter_shares(row);
      if (dx != nullptr) input_gradient(row, accumulate, is_large);
    }
  });
  if (dw != nullptr) add_shares(dw_shares, blocks, p.cols, dw, (p.accumulate & kLayerNormDw) != 0);
  if (db != nullptr) add_shares(db_shares, blocks, p.cols, db, (p.accumulate & kLayerNormDb) != 0);
}
MIXTAPE_SIMD_KERNEL(layer_norm_backward)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(layer_norm_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(layer_norm_backward)
}  // namespace mixtape
#endif
