#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/l2_norm/l2_norm_cpu.cpp"
#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/rows-inl.h"
#include "mixtape/ops/l2_norm/l2_norm_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class T>
struct L2NormForward {
  const T* x;
  T* y;
  float* q;
  std::int64_t cols;
  float eps;
  float scale = 0.0f;

  template <class Step>
  HWY_INLINE void add(std::int64_t r, std::size_t c, Step step, RowSum& sum) const {
    const Floats in = step.load(x + r * cols + c);
    sum.add_product(in, in);
  }
  HWY_INLINE void settle(std::int64_t r, float sum) { q[r] = scale = 1.0f / std::sqrt(sum + eps); }
  template <class Step>
  HWY_INLINE void write(std::int64_t r, std::size_t c, Step step) const {
    step.store(hn::Mul(step.reload(x + r * cols + c), set(scale)), y + r * cols + c);
  }
};

template <class T>
void l2_norm_forward(const HostCall& call) {
  const auto& p = call.params<L2NormParams>();
  const T* x = call.read<T>(0);
  T* y = call.write<T>(0);
  float* q = call.write<float>(1);
  const bool is_large = streams(y, p.rows, p.cols);
  const L2NormForward<T> kernel{x, y, q, p.cols, p.eps};
  parallel_rows(p.rows, is_large, kernel);
}
MIXTAPE_SIMD_KERNEL(l2_norm_forward)

// dx = q * (dy - x*slope), slope = q^2 * sum x*dy
template <class T>
struct L2NormBackward {
  const T* x;
  const float* q;
  const T* dy;
  T* dx;
  std::int64_t cols;
  bool accumulate;
  float slope = 0.0f;

  template <class Step>
  HWY_INLINE void add(std::int64_t r, std::size_t c, Step step, RowSum& sum) const {
    sum.add_product(step.load(x + r * cols + c), step.load(dy + r * cols + c));
  }
  HWY_INLINE void settle(std::int64_t r, float sum) { slope = sum * q[r] * q[r]; }
  template <class Step>
  HWY_INLINE void write(std::int64_t r, std::size_t c, Step step) const {
    T* to = dx + r * cols + c;
    const Floats d = hn::NegMulAdd(step.reload(x + r * cols + c), set(slope), step.reload(dy + r * cols + c));
    const Floats scaled = hn::Mul(set(q[r]), d);
    step.store(accumulate ? hn::Add(step.load(to), scaled) : scaled, to);
  }
};

template <class T>
void l2_norm_backward(const HostCall& call) {
  const auto& p = call.params<L2NormParams>();
  const T* x = call.read<T>(0);
  const float* q = call.read<float>(1);
  const T* dy = call.read<T>(2);
  T* dx = call.write<T>(0);
  const bool accumulate = p.accumulate != 0, is_large = !accumulate && streams(dx, p.rows, p.cols);
  const L2NormBackward<T> kernel{x, q, dy, dx, p.cols, accumulate};
  parallel_rows(p.rows, is_large, kernel);
}
MIXTAPE_SIMD_KERNEL(l2_norm_backward)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(l2_norm_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(l2_norm_backward)
}  // namespace mixtape
#endif
