#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/elementwise/unary_cpu.cpp"
// clang-format off
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/contrib/math/math-inl.h"
// clang-format on
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/elementwise/elementwise_params.h"
#include "mixtape/ops/elementwise/pow_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// The table: value(x, factor), and gradient(saved, dy, factor) = dy * dy/dx.
struct scale_op {
  static HWY_INLINE Floats value(Floats x, float factor) { return hn::Mul(set(factor), x); }
  static HWY_INLINE Floats gradient(Floats, Floats dy, float factor) { return hn::Mul(dy, set(factor)); }
};
struct exp_op {
  static HWY_INLINE Floats value(Floats x, float) { return exp(x); }
  static HWY_INLINE Floats gradient(Floats y, Floats dy, float) { return hn::Mul(dy, y); }
};
struct log_op {
  static HWY_INLINE Floats value(Floats x, float) {
    const Floats y = hn::Log(kF, x);
    const Floats at_edge = hn::IfThenElse(hn::Eq(x, zero()), set(-HUGE_VALF), x);  // 0, +inf, NaN
    const auto is_ordinary = hn::And(hn::Gt(x, zero()), hn::Lt(x, set(HUGE_VALF)));
    return hn::IfThenElse(hn::Lt(x, zero()), set(NAN), hn::IfThenElse(is_ordinary, y, at_edge));
  }
  static HWY_INLINE Floats gradient(Floats x, Floats dy, float) { return hn::Mul(dy, hn::Div(set(1.0f), x)); }
};
struct sqrt_op {
  static HWY_INLINE Floats value(Floats x, float) { return hn::Sqrt(x); }
  static HWY_INLINE Floats gradient(Floats y, Floats dy, float) { return hn::Mul(dy, hn::Div(set(0.5f), y)); }
};
struct rsqrt_op {
  static HWY_INLINE Floats value(Floats x, float) { return hn::Div(set(1.0f), hn::Sqrt(x)); }
  static HWY_INLINE Floats gradient(Floats y, Floats dy, float) {
    return hn::Mul(dy, hn::Mul(hn::Mul(set(-0.5f), y), hn::Mul(y, y)));
  }
};
struct sigmoid_op {
  static HWY_INLINE Floats value(Floats x, float) { return sigmoid(x); }
  static HWY_INLINE Floats gradient(Floats y, Floats dy, float) {
    return hn::Mul(dy, hn::Mul(y, hn::Sub(set(1.0f), y)));
  }
};
struct tanh_op {
  static HWY_INLINE Floats value(Floats x, float) { return hn::Tanh(kF, x); }
  static HWY_INLINE Floats gradient(Floats y, Floats dy, float) {
    return hn::Mul(dy, hn::NegMulAdd(y, y, set(1.0f)));
  }
};
struct gelu_op {
  static constexpr float kFactor = 0.797884560802865f;  // sqrt(2/pi)
  static HWY_INLINE Floats twice_u(Floats x) {
    return hn::Mul(hn::Mul(set(2.0f * kFactor), x), hn::MulAdd(hn::Mul(set(0.044715f), x), x, set(1.0f)));
  }
  static HWY_INLINE Floats value(Floats x, float) { return hn::Mul(sigmoid(twice_u(x)), bounded_below(x)); }
  static HWY_INLINE Floats gradient(Floats any, Floats dy, float) {
    const Floats x = bounded(any);
    const Sigmoids s = sigmoids(twice_u(x));
    const Floats slope_of_twice_u =
        hn::Mul(set(2.0f * kFactor), hn::MulAdd(hn::Mul(set(0.134145f), x), x, set(1.0f)));
    return hn::Mul(dy, hn::Mul(s.of_x, hn::MulAdd(s.of_minus_x, hn::Mul(x, slope_of_twice_u), set(1.0f))));
  }
};
struct silu_op {
  static HWY_INLINE Floats value(Floats x, float) { return silu(x); }
  static HWY_INLINE Floats gradient(Floats x, Floats dy, float) {
    return hn::Mul(dy, silu_slope(x, sigmoids(x)));
  }
};
struct softcap_op {
  static HWY_INLINE Floats value(Floats x, float cap) {
    return hn::Mul(set(cap), hn::Tanh(kF, hn::Div(x, set(cap))));
  }
  static HWY_INLINE Floats gradient(Floats y, Floats dy, float cap) {
    const Floats t = hn::Div(y, set(cap));
    return hn::Mul(dy, hn::NegMulAdd(t, t, set(1.0f)));
  }
};

struct shift_op {
  static HWY_INLINE Floats value(Floats x, float c) { return hn::Add(x, set(c)); }
  static HWY_INLINE Floats gradient(Floats, Floats dy, float) { return dy; }
};
struct divide_op {
  static HWY_INLINE Floats value(Floats x, float c) { return hn::Div(x, set(c)); }
  static HWY_INLINE Floats gradient(Floats, Floats dy, float c) { return hn::Div(dy, set(c)); }
};
// Two quotients instead of one by x^2, which could overflow.
struct reciprocal_op {
  static HWY_INLINE Floats value(Floats x, float c) { return hn::Div(set(c), x); }
  static HWY_INLINE Floats gradient(Floats x, Floats dy, float c) {
    return hn::Neg(hn::Mul(hn::Div(dy, x), hn::Div(set(c), x)));
  }
};
struct power_op {
  static HWY_INLINE Floats value(Floats x, float c) { return pow_lanes(x, set(c)); }
  static HWY_INLINE Floats gradient(Floats x, Floats dy, float c) {
    return hn::Mul(dy, pow_slope(x, set(c)));
  }
};
struct relu_op {
  static HWY_INLINE Floats value(Floats x, float) { return hn::IfThenZeroElse(hn::Le(x, zero()), x); }
  static HWY_INLINE Floats gradient(Floats y, Floats dy, float) {
    return hn::IfThenZeroElse(hn::Le(y, zero()), dy);
  }
};
struct abs_op {
  static HWY_INLINE Floats value(Floats x, float) { return hn::Abs(x); }
  static HWY_INLINE Floats gradient(Floats x, Floats dy, float) {
    return hn::IfThenZeroElse(hn::Eq(x, zero()), hn::IfThenElse(hn::Lt(x, zero()), hn::Neg(dy), dy));
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
    const Floats d = Op::gradient(step.load(saved + i), step.load(dy + i), p.factor);
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

// `name`: what runs the ops in each of the value dtypes.
#define MIXTAPE_KERNELS_OF(name, runner, op) \
  template <class T>                         \
  void name(const HostCall& call) {          \
    runner<op, T>(call);                     \
  }                                          \
  MIXTAPE_SIMD_KERNEL(name)
#define MIXTAPE_UNARY_KERNELS(name)                            \
  MIXTAPE_KERNELS_OF(name##_forward, unary_forward, name##_op) \
  MIXTAPE_KERNELS_OF(name##_backward, unary_backward, name##_op)
MIXTAPE_UNARY_OPS(MIXTAPE_UNARY_KERNELS)

#undef MIXTAPE_KERNELS_OF
#undef MIXTAPE_UNARY_KERNELS

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
#define MIXTAPE_REGISTER_UNARY(name)           \
  MIXTAPE_REGISTER_SIMD_KERNEL(name##_forward) \
  MIXTAPE_REGISTER_SIMD_KERNEL(name##_backward)
MIXTAPE_UNARY_OPS(MIXTAPE_REGISTER_UNARY)
}  // namespace mixtape
#endif
