#include "mixtape/backend/gpu/sigmoid.h"
#include "mixtape/backend/gpu/streams.h"
#include "mixtape/ops/elementwise/elementwise_params.h"

namespace mixtape {

// The table: value(x, factor), and gradient(saved, dy, factor) = dy * dy/dx.
struct scale_op {
  static MIXTAPE_DEVICE float value(float x, float factor) { return factor * x; }
  static MIXTAPE_DEVICE float gradient(float, float dy, float factor) { return dy * (factor); }
};
struct exp_op {
  static MIXTAPE_DEVICE float value(float x, float) { return exp_f32(x); }
  static MIXTAPE_DEVICE float gradient(float y, float dy, float) { return dy * (y); }
};
struct log_op {
  static MIXTAPE_DEVICE float value(float x, float) { return log_f32(x); }
  static MIXTAPE_DEVICE float gradient(float x, float dy, float) { return dy * (1.0f / x); }
};
struct sqrt_op {
  static MIXTAPE_DEVICE float value(float x, float) { return sqrt_f32(x); }
  static MIXTAPE_DEVICE float gradient(float y, float dy, float) { return dy * (0.5f / y); }
};
struct rsqrt_op {
  static MIXTAPE_DEVICE float value(float x, float) { return 1.0f / sqrt_f32(x); }
  static MIXTAPE_DEVICE float gradient(float y, float dy, float) { return dy * (-0.5f * y * (y * y)); }
};
struct sigmoid_op {
  static MIXTAPE_DEVICE float value(float x, float) {
    const float e = exp_f32(-abs_f32(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
  }
  static MIXTAPE_DEVICE float gradient(float y, float dy, float) { return dy * (y * (1.0f - y)); }
};
struct tanh_op {
  static MIXTAPE_DEVICE float value(float x, float) { return tanh_f32(x); }
  static MIXTAPE_DEVICE float gradient(float y, float dy, float) { return dy * (fma_f32(-y, y, 1.0f)); }
};
struct gelu_op {
  static constexpr float kFactor = 2.0f * 0.797884560802865f;  // 2 sqrt(2/pi)
  static MIXTAPE_DEVICE float twice_u(float x) { return kFactor * x * fma_f32(0.044715f * x, x, 1.0f); }
  static MIXTAPE_DEVICE float value(float x, float) { return mul_or_zero(sigmoids(twice_u(x)).of_x, x); }
  static MIXTAPE_DEVICE float gradient(float x, float dy, float) {
    const Sigmoids s = sigmoids(twice_u(x));
    const float slope_of_twice_u = kFactor * fma_f32(0.134145f * x, x, 1.0f);
    return dy * mul_or_zero(s.of_x, 1.0f + mul_or_zero(s.of_minus_x, x * slope_of_twice_u));
  }
};
struct silu_op {
  static MIXTAPE_DEVICE float value(float x, float) { return silu_of(x); }
  static MIXTAPE_DEVICE float gradient(float x, float dy, float) { return dy * (silu_slope(x, sigmoids(x))); }
};
struct softcap_op {
  static MIXTAPE_DEVICE float value(float x, float cap) { return cap * tanh_f32(x / cap); }
  static MIXTAPE_DEVICE float gradient(float y, float dy, float cap) {
    const float t = y / cap;
    return dy * fma_f32(-t, t, 1.0f);
  }
};

struct shift_op {
  static MIXTAPE_DEVICE float value(float x, float c) { return x + c; }
  static MIXTAPE_DEVICE float gradient(float, float dy, float) { return dy; }
};
struct divide_op {
  static MIXTAPE_DEVICE float value(float x, float c) { return x / c; }
  static MIXTAPE_DEVICE float gradient(float, float dy, float c) { return dy / c; }
};
// Two quotients instead of one by x^2, which could overflow.
struct reciprocal_op {
  static MIXTAPE_DEVICE float value(float x, float c) { return c / x; }
  static MIXTAPE_DEVICE float gradient(float x, float dy, float c) { return -((dy / x) * (c / x)); }
};
struct power_op {
  static MIXTAPE_DEVICE float value(float x, float c) { return pow_f32(x, c); }
  static MIXTAPE_DEVICE float gradient(float x, float dy, float c) {
    return c == 0.0f ? 0.0f : dy * (c * pow_f32(x, c - 1.0f));
  }
};
struct relu_op {
  static MIXTAPE_DEVICE float value(float x, float) { return x <= 0.0f ? 0.0f : x; }
  static MIXTAPE_DEVICE float gradient(float y, float dy, float) { return y <= 0.0f ? 0.0f : dy; }
};
struct abs_op {
  static MIXTAPE_DEVICE float value(float x, float) { return abs_f32(x); }
  static MIXTAPE_DEVICE float gradient(float x, float dy, float) {
    return x == 0.0f ? 0.0f : x < 0.0f ? -dy : dy;
  }
};

template <class Op>
struct UnaryForward {
  float factor;
  MIXTAPE_DEVICE void operator()(const float (&in)[1], float (&y)[1]) const {
    y[0] = Op::value(in[0], factor);
  }
};
template <class Op>
struct UnaryBackward {
  float factor;
  MIXTAPE_DEVICE void operator()(const float (&in)[2], float (&dx)[1]) const {
    dx[0] = Op::gradient(in[0], in[1], factor);
  }
};

#define KERNELS(OP, T)                                                                             \
  MIXTAPE_KERNEL(OP##_forward_##T, 256, UnaryParams p, Global<const T> x, Global<T> y) {           \
    await_earlier();                                                                               \
    stream(Streams<T, 1, 1>{{x}, {y}, {true}, {false}}, p.count, UnaryForward<OP##_op>{p.factor}); \
  }                                                                                                \
  MIXTAPE_KERNEL(OP##_backward_##T, 256, UnaryParams p, Global<const T> saved, Global<const T> dy, \
                 Global<T> dx) {                                                                   \
    await_earlier();                                                                               \
    stream(Streams<T, 2, 1>{{saved, dy}, {dx}, {true}, {p.accumulate != 0}}, p.count,              \
           UnaryBackward<OP##_op>{p.factor});                                                      \
  }
#define UNARY(OP) KERNELS(OP, f32) KERNELS(OP, bf16) KERNELS(OP, f16)
MIXTAPE_UNARY_OPS(UNARY)

}  // namespace mixtape
