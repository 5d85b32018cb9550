#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/elementwise/elementwise_cpu.cpp"
// clang-format off
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/contrib/math/math-inl.h"
// clang-format on
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/elementwise/elementwise_params.h"

#ifndef MIXTAPE_ELEMENTWISE_CPU_ONCE
#define MIXTAPE_ELEMENTWISE_CPU_ONCE
#include <algorithm>
#include <vector>

namespace mixtape {

// An operand that repeats; a short one is written out several times, so that inner loops stay long.
template <class T>
class Repeated {
 public:
  Repeated(const T* data, std::int64_t count, std::int64_t whole) : data_(data), count_(count) {
    if (count >= kShort || count == whole) return;
    const std::int64_t times = (kShort + count - 1) / count;
    for (std::int64_t t = 0; t < times; ++t) copies_.insert(copies_.end(), data, data + count);
    data_ = copies_.data();
    count_ = times * count;
  }
  const T* at(std::int64_t i) const { return data_ + i % count_; }
  std::int64_t until_repeat(std::int64_t i) const { return count_ - i % count_; }
  bool keeps_lines(std::int64_t whole) const {
    return count_ >= whole || count_ * std::int64_t{sizeof(T)} % 64 == 0;
  }

 private:
  static constexpr std::int64_t kShort = 512;
  const T* data_;
  std::int64_t count_;
  std::vector<T> copies_;
};

}  // namespace mixtape
#endif

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// The table: value(x, factor), and slope(saved, factor) = dy/dx.
struct scale_op {
  static HWY_INLINE Floats value(Floats x, float factor) { return hn::Mul(set(factor), x); }
  static HWY_INLINE Floats slope(Floats, float factor) { return set(factor); }
};
struct exp_op {
  static HWY_INLINE Floats value(Floats x, float) { return exp(x); }
  static HWY_INLINE Floats slope(Floats y, float) { return y; }
};
struct log_op {
  static HWY_INLINE Floats value(Floats x, float) {
    const Floats y = hn::Log(kF, x);
    const Floats at_edge = hn::IfThenElse(hn::Eq(x, zero()), set(-HUGE_VALF), x);  // 0, +inf, NaN
    const auto is_ordinary = hn::And(hn::Gt(x, zero()), hn::Lt(x, set(HUGE_VALF)));
    return hn::IfThenElse(hn::Lt(x, zero()), set(NAN), hn::IfThenElse(is_ordinary, y, at_edge));
  }
  static HWY_INLINE Floats slope(Floats x, float) { return hn::Div(set(1.0f), x); }
};
struct sqrt_op {
  static HWY_INLINE Floats value(Floats x, float) { return hn::Sqrt(x); }
  static HWY_INLINE Floats slope(Floats y, float) { return hn::Div(set(0.5f), y); }
};
struct rsqrt_op {
  static HWY_INLINE Floats value(Floats x, float) { return hn::Div(set(1.0f), hn::Sqrt(x)); }
  static HWY_INLINE Floats slope(Floats y, float) { return hn::Mul(hn::Mul(set(-0.5f), y), hn::Mul(y, y)); }
};
struct sigmoid_op {
  static HWY_INLINE Floats value(Floats x, float) { return sigmoid(x); }
  static HWY_INLINE Floats slope(Floats y, float) { return hn::Mul(y, hn::Sub(set(1.0f), y)); }
};
struct tanh_op {
  static HWY_INLINE Floats value(Floats x, float) { return hn::Tanh(kF, x); }
  static HWY_INLINE Floats slope(Floats y, float) { return hn::NegMulAdd(y, y, set(1.0f)); }
};
struct gelu_op {
  static constexpr float kFactor = 0.797884560802865f;  // sqrt(2/pi)
  static HWY_INLINE Floats twice_u(Floats x) {
    return hn::Mul(hn::Mul(set(2.0f * kFactor), x), hn::MulAdd(hn::Mul(set(0.044715f), x), x, set(1.0f)));
  }
  static HWY_INLINE Floats value(Floats x, float) { return hn::Mul(sigmoid(twice_u(x)), bounded_below(x)); }
  static HWY_INLINE Floats slope(Floats any, float) {
    const Floats x = bounded(any);
    const Sigmoids s = sigmoids(twice_u(x));
    const Floats slope_of_twice_u =
        hn::Mul(set(2.0f * kFactor), hn::MulAdd(hn::Mul(set(0.134145f), x), x, set(1.0f)));
    return hn::Mul(s.of_x, hn::MulAdd(s.of_minus_x, hn::Mul(x, slope_of_twice_u), set(1.0f)));
  }
};
struct silu_op {
  static HWY_INLINE Floats value(Floats x, float) { return silu(x); }
  static HWY_INLINE Floats slope(Floats x, float) { return silu_slope(x, sigmoids(x)); }
};
struct softcap_op {
  static HWY_INLINE Floats value(Floats x, float cap) {
    return hn::Mul(set(cap), hn::Tanh(kF, hn::Div(x, set(cap))));
  }
  static HWY_INLINE Floats slope(Floats y, float cap) {
    const Floats t = hn::Div(y, set(cap));
    return hn::NegMulAdd(t, t, set(1.0f));
  }
};

template <class Op, class T>
void unary_run(const T* x, T* y, std::size_t n, float factor, bool is_large) {
  for_each_step(n, is_large, [&](std::size_t i, auto step) HWY_ATTR {
    step.store(Op::value(step.load(x + i), factor), y + i);
  });
}

template <class Op, class T>
void unary_forward(const HostCall& call) {
  const auto& p = call.params<UnaryParams>();
  const T* x = call.read<T>(0);
  T* y = call.write<T>(0);
  const bool is_large = streams(y, 1, p.count);
  cpu::parallel_for(p.count, cpu::row_grain(1), [&](std::int64_t begin, std::int64_t end) {
    unary_run<Op>(x + begin, y + begin, static_cast<std::size_t>(end - begin), p.factor, is_large);
  });
}

template <class Op, class T>
void unary_backward_run(const T* saved, const T* dy, T* dx, std::size_t n, const UnaryParams& p,
                        bool is_large) {
  for_each_step(n, is_large, [&](std::size_t i, auto step) HWY_ATTR {
    const Floats d = hn::Mul(step.load(dy + i), Op::slope(step.load(saved + i), p.factor));
    step.store(p.accumulate ? hn::Add(step.load(dx + i), d) : d, dx + i);
  });
}

template <class Op, class T>
void unary_backward(const HostCall& call) {
  const auto& p = call.params<UnaryParams>();
  const T* saved = call.read<T>(0);
  const T* dy = call.read<T>(1);
  T* dx = call.write<T>(0);
  const bool is_large = !p.accumulate && streams(dx, 1, p.count);
  cpu::parallel_for(p.count, cpu::row_grain(1), [&](std::int64_t begin, std::int64_t end) {
    unary_backward_run<Op>(saved + begin, dy + begin, dx + begin, static_cast<std::size_t>(end - begin), p,
                           is_large);
  });
}

struct add_op {
  static HWY_INLINE Floats value(Floats a, Floats b) { return hn::Add(a, b); }
};
struct sub_op {
  static HWY_INLINE Floats value(Floats a, Floats b) { return hn::Sub(a, b); }
};
struct mul_op {
  static HWY_INLINE Floats value(Floats a, Floats b) { return hn::Mul(a, b); }
};
struct div_op {
  static HWY_INLINE Floats value(Floats a, Floats b) { return hn::Div(a, b); }
};

template <class Op, class T>
void binary_run(const T* a, const T* b, T* y, std::size_t n, bool is_large) {
  for_each_step(n, is_large, [&](std::size_t i, auto step) HWY_ATTR {
    step.store(Op::value(step.load(a + i), step.load(b + i)), y + i);
  });
}

// Runs end where an operand repeats; unless that is at a 64-byte boundary of y, nothing goes past the caches.
template <class Op, class T>
void binary_forward(const HostCall& call) {
  const auto& p = call.params<BinaryParams>();
  const Repeated<T> a(call.read<T>(0), p.a_count, p.count);
  const Repeated<T> b(call.read<T>(1), p.b_count, p.count);
  T* y = call.write<T>(0);
  const bool is_large = streams(y, 1, p.count) && a.keeps_lines(p.count) && b.keeps_lines(p.count);
  cpu::parallel_for(p.count, cpu::row_grain(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin, n = 0; i < end; i += n) {
      n = std::min({end - i, a.until_repeat(i), b.until_repeat(i)});
      binary_run<Op>(a.at(i), b.at(i), y + i, static_cast<std::size_t>(n), is_large);
    }
  });
}

// The gradient of one operand of a binary op, from dy, that operand and the other one.
struct add_backward_op {
  static HWY_INLINE Floats gradient(Floats dy, Floats, Floats) { return dy; }
};
struct sub_backward_op {
  static HWY_INLINE Floats gradient(Floats dy, Floats, Floats) { return hn::Neg(dy); }
};
struct mul_backward_op {
  static HWY_INLINE Floats gradient(Floats dy, Floats, Floats other) { return hn::Mul(dy, other); }
};
struct div_backward_a_op {
  static HWY_INLINE Floats gradient(Floats dy, Floats, Floats other) { return hn::Div(dy, other); }
};
// Two quotients instead of one by b^2, which could overflow.
struct div_backward_b_op {
  static HWY_INLINE Floats gradient(Floats dy, Floats self, Floats other) {
    return hn::Neg(hn::Mul(hn::Div(dy, self), hn::Div(other, self)));
  }
};

template <class Op, class T, class Out>
void binary_backward_run(const T* dy, const T* self, const T* other, Out* dx, std::size_t n, bool accumulate,
                         bool is_large) {
  for_each_step(n, is_large, [&](std::size_t i, auto step) HWY_ATTR {
    const Floats d = Op::gradient(step.load(dy + i), step.load(self + i), step.load(other + i));
    step.store(accumulate ? hn::Add(step.load(dx + i), d) : d, dx + i);
  });
}

template <class Op, class T>
void binary_backward(const HostCall& call) {
  const auto& p = call.params<BinaryBackwardParams>();
  const T* dy = call.read<T>(0);
  const T* self = call.read<T>(1);
  const Repeated<T> other(call.read<T>(2), p.other_count, p.cols);
  T* dx = call.write<T>(0);
  const bool is_large = !p.accumulate && streams(dx, 1, p.cols) && other.keeps_lines(p.cols);
  cpu::parallel_for(p.cols, cpu::row_grain(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin, n = 0; i < end; i += n) {
      n = std::min(end - i, other.until_repeat(i));
      binary_backward_run<Op>(dy + i, self + i, other.at(i), dx + i, static_cast<std::size_t>(n),
                              p.accumulate != 0, is_large);
    }
  });
}

// dx = (dx if accumulate) + partial sums 0 + 1 + ... + blocks-1, each [cols].
template <class T>
void add_blocks(const float* partial, std::int64_t blocks, std::int64_t cols, T* dx, std::size_t n,
                bool accumulate) {
  for (std::size_t i = 0; i < n; i += lanes()) {
    Floats sum = zero();
    for (std::int64_t b = 0; b < blocks; ++b) sum = hn::Add(sum, load(partial + b * cols + i, n - i));
    store(accumulate ? hn::Add(load(dx + i, n - i), sum) : sum, dx + i, n - i);
  }
}

template <class Op, class T>
void binary_backward_sum(const HostCall& call) {
  constexpr std::int64_t kRows = 64, kCols = 2048;  // a block's partial sum stays in the first-level cache
  const auto& p = call.params<BinaryBackwardParams>();
  const T* dy = call.read<T>(0);
  const T* self = call.read<T>(1);
  const T* other = call.read<T>(2);
  T* dx = call.write<T>(0);
  const std::int64_t blocks = (p.rows + kRows - 1) / kRows;
  const std::int64_t stripes = (p.cols + kCols - 1) / kCols;
  std::vector<float> partial(static_cast<std::size_t>(blocks * p.cols));
  const auto sum_block = [&](std::int64_t block, std::int64_t c) {
    const auto n = static_cast<std::size_t>(std::min(kCols, p.cols - c));
    for (std::int64_t r = block * kRows; r < std::min(p.rows, (block + 1) * kRows); ++r) {
      const std::int64_t at = r * p.cols + c;
      binary_backward_run<Op>(dy + at, self + c, other + at, partial.data() + block * p.cols + c, n,
                              r > block * kRows, false);
    }
  };
  const std::int64_t grain = cpu::row_grain(kRows * std::min(kCols, p.cols));
  cpu::parallel_for(blocks * stripes, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) sum_block(i / stripes, i % stripes * kCols);
  });
  cpu::parallel_for(p.cols, kCols, [&](std::int64_t begin, std::int64_t end) {
    add_blocks(partial.data() + begin, blocks, p.cols, dx + begin, static_cast<std::size_t>(end - begin),
               p.accumulate != 0);
  });
}

// `name`: what runs `op` in each of the value dtypes.
#define MIXTAPE_KERNELS_OF(name, runner, op) \
  template <class T>                         \
  void name(const HostCall& call) {          \
    runner<op, T>(call);                     \
  }                                          \
  MIXTAPE_SIMD_KERNEL(name)
#define MIXTAPE_UNARY_KERNELS(name)                            \
  MIXTAPE_KERNELS_OF(name##_forward, unary_forward, name##_op) \
  MIXTAPE_KERNELS_OF(name##_backward, unary_backward, name##_op)
#define MIXTAPE_BINARY_KERNELS(name) MIXTAPE_KERNELS_OF(name##_forward, binary_forward, name##_op)
#define MIXTAPE_BINARY_BACKWARD(name) MIXTAPE_KERNELS_OF(name, binary_backward, name##_op)
#define MIXTAPE_BINARY_BACKWARD_SUM(name) MIXTAPE_KERNELS_OF(name##_sum, binary_backward_sum, name##_op)
MIXTAPE_UNARY_OPS(MIXTAPE_UNARY_KERNELS)
MIXTAPE_BINARY_OPS(MIXTAPE_BINARY_KERNELS)
MIXTAPE_BINARY_BACKWARD(mul_backward)
MIXTAPE_BINARY_BACKWARD(div_backward_a)
MIXTAPE_BINARY_BACKWARD(div_backward_b)
MIXTAPE_BINARY_BACKWARD_SUM(add_backward)
MIXTAPE_BINARY_BACKWARD_SUM(sub_backward)
MIXTAPE_BINARY_BACKWARD_SUM(mul_backward)
MIXTAPE_BINARY_BACKWARD_SUM(div_backward_a)
MIXTAPE_BINARY_BACKWARD_SUM(div_backward_b)

#undef MIXTAPE_KERNELS_OF
#undef MIXTAPE_UNARY_KERNELS
#undef MIXTAPE_BINARY_KERNELS
#undef MIXTAPE_BINARY_BACKWARD
#undef MIXTAPE_BINARY_BACKWARD_SUM

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
#define MIXTAPE_REGISTER_UNARY(name)           \
  MIXTAPE_REGISTER_SIMD_KERNEL(name##_forward) \
  MIXTAPE_REGISTER_SIMD_KERNEL(name##_backward)
#define MIXTAPE_REGISTER_BINARY(name) MIXTAPE_REGISTER_SIMD_KERNEL(name##_forward)
MIXTAPE_UNARY_OPS(MIXTAPE_REGISTER_UNARY)
MIXTAPE_BINARY_OPS(MIXTAPE_REGISTER_BINARY)
MIXTAPE_REGISTER_SIMD_KERNEL(mul_backward)
MIXTAPE_REGISTER_SIMD_KERNEL(div_backward_a)
MIXTAPE_REGISTER_SIMD_KERNEL(div_backward_b)
MIXTAPE_REGISTER_SIMD_KERNEL(add_backward_sum)
MIXTAPE_REGISTER_SIMD_KERNEL(sub_backward_sum)
MIXTAPE_REGISTER_SIMD_KERNEL(mul_backward_sum)
MIXTAPE_REGISTER_SIMD_KERNEL(div_backward_a_sum)
MIXTAPE_REGISTER_SIMD_KERNEL(div_backward_b_sum)
}  // namespace mixtape
#endif
