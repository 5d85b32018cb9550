#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/elementwise/binary_cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/elementwise/elementwise_params.h"
#include "mixtape/ops/elementwise/pow_cpu.h"

#ifndef MIXTAPE_BINARY_CPU_ONCE
#define MIXTAPE_BINARY_CPU_ONCE
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
// Where a is the larger one, or a NaN, or they are equal.
HWY_INLINE hn::Mask<FloatTag> a_is_maximum(Floats a, Floats b) { return hn::Or(hn::Ge(a, b), hn::IsNaN(a)); }
HWY_INLINE hn::Mask<FloatTag> a_is_minimum(Floats a, Floats b) { return hn::Or(hn::Le(a, b), hn::IsNaN(a)); }
struct maximum_op {
  static HWY_INLINE Floats value(Floats a, Floats b) { return hn::IfThenElse(a_is_maximum(a, b), a, b); }
};
struct minimum_op {
  static HWY_INLINE Floats value(Floats a, Floats b) { return hn::IfThenElse(a_is_minimum(a, b), a, b); }
};
struct pow_op {
  static HWY_INLINE Floats value(Floats a, Floats b) { return pow_lanes(a, b); }
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
struct maximum_backward_a_op {
  static HWY_INLINE Floats gradient(Floats dy, Floats self, Floats other) {
    return hn::IfThenElseZero(a_is_maximum(self, other), dy);
  }
};
struct maximum_backward_b_op {
  static HWY_INLINE Floats gradient(Floats dy, Floats self, Floats other) {
    return hn::IfThenZeroElse(a_is_maximum(other, self), dy);
  }
};
struct minimum_backward_a_op {
  static HWY_INLINE Floats gradient(Floats dy, Floats self, Floats other) {
    return hn::IfThenElseZero(a_is_minimum(self, other), dy);
  }
};
struct minimum_backward_b_op {
  static HWY_INLINE Floats gradient(Floats dy, Floats self, Floats other) {
    return hn::IfThenZeroElse(a_is_minimum(other, self), dy);
  }
};
struct pow_backward_a_op {
  static HWY_INLINE Floats gradient(Floats dy, Floats self, Floats other) {
    return hn::Mul(dy, pow_slope(self, other));
  }
};
// dy a^b ln a, 0 where a is 0 and b isn't negative.
struct pow_backward_b_op {
  static HWY_INLINE Floats gradient(Floats dy, Floats self, Floats other) {
    const auto is_zero = hn::And(hn::Eq(other, zero()), hn::Ge(self, zero()));
    const Floats slope = hn::Mul(pow_lanes(other, self), log_lanes(other));
    return hn::Mul(dy, hn::IfThenZeroElse(is_zero, slope));
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
#define MIXTAPE_FORWARD(name) MIXTAPE_KERNELS_OF(name##_forward, binary_forward, name##_op)
#define MIXTAPE_BACKWARD(name) MIXTAPE_KERNELS_OF(name, binary_backward, name##_op)
#define MIXTAPE_BACKWARD_SUM(name) MIXTAPE_KERNELS_OF(name##_sum, binary_backward_sum, name##_op)
MIXTAPE_BINARY_OPS(MIXTAPE_FORWARD)
MIXTAPE_BINARY_BACKWARDS(MIXTAPE_BACKWARD)
MIXTAPE_BINARY_BACKWARD_SUMS(MIXTAPE_BACKWARD_SUM)

#undef MIXTAPE_KERNELS_OF
#undef MIXTAPE_FORWARD
#undef MIXTAPE_BACKWARD
#undef MIXTAPE_BACKWARD_SUM

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
#define MIXTAPE_REGISTER_FORWARD(name) MIXTAPE_REGISTER_SIMD_KERNEL(name##_forward)
#define MIXTAPE_REGISTER_SUM(name) MIXTAPE_REGISTER_SIMD_KERNEL(name##_sum)
MIXTAPE_BINARY_OPS(MIXTAPE_REGISTER_FORWARD)
MIXTAPE_BINARY_BACKWARDS(MIXTAPE_REGISTER_SIMD_KERNEL)
MIXTAPE_BINARY_BACKWARD_SUMS(MIXTAPE_REGISTER_SUM)
}  // namespace mixtape
#endif
