#include "mixtape/backend/gpu/sigmoid.h"
#include "mixtape/backend/gpu/streams.h"
#include "mixtape/ops/elementwise/elementwise_params.h"

namespace mixtape {

// The table: value(x, factor), and slope(saved, factor) = dy/dx.
struct scale_op {
  static MIXTAPE_DEVICE float value(float x, float factor) { return factor * x; }
  static MIXTAPE_DEVICE float slope(float, float factor) { return factor; }
};
struct exp_op {
  static MIXTAPE_DEVICE float value(float x, float) { return exp_f32(x); }
  static MIXTAPE_DEVICE float slope(float y, float) { return y; }
};
struct log_op {
  static MIXTAPE_DEVICE float value(float x, float) { return log_f32(x); }
  static MIXTAPE_DEVICE float slope(float x, float) { return 1.0f / x; }
};
struct sqrt_op {
  static MIXTAPE_DEVICE float value(float x, float) { return sqrt_f32(x); }
  static MIXTAPE_DEVICE float slope(float y, float) { return 0.5f / y; }
};
struct rsqrt_op {
  static MIXTAPE_DEVICE float value(float x, float) { return 1.0f / sqrt_f32(x); }
  static MIXTAPE_DEVICE float slope(float y, float) { return -0.5f * y * (y * y); }
};
struct sigmoid_op {
  static MIXTAPE_DEVICE float value(float x, float) {
    const float e = exp_f32(-abs_f32(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
  }
  static MIXTAPE_DEVICE float slope(float y, float) { return y * (1.0f - y); }
};
struct tanh_op {
  static MIXTAPE_DEVICE float value(float x, float) { return tanh_f32(x); }
  static MIXTAPE_DEVICE float slope(float y, float) { return fma_f32(-y, y, 1.0f); }
};
struct gelu_op {
  static constexpr float kFactor = 2.0f * 0.797884560802865f;  // 2 sqrt(2/pi)
  static MIXTAPE_DEVICE float twice_u(float x) { return kFactor * x * fma_f32(0.044715f * x, x, 1.0f); }
  static MIXTAPE_DEVICE float value(float x, float) { return mul_or_zero(sigmoids(twice_u(x)).of_x, x); }
  static MIXTAPE_DEVICE float slope(float x, float) {
    const Sigmoids s = sigmoids(twice_u(x));
    const float slope_of_twice_u = kFactor * fma_f32(0.134145f * x, x, 1.0f);
    return mul_or_zero(s.of_x, 1.0f + mul_or_zero(s.of_minus_x, x * slope_of_twice_u));
  }
};
struct silu_op {
  static MIXTAPE_DEVICE float value(float x, float) { return silu_of(x); }
  static MIXTAPE_DEVICE float slope(float x, float) { return silu_slope(x, sigmoids(x)); }
};
struct softcap_op {
  static MIXTAPE_DEVICE float value(float x, float cap) { return cap * tanh_f32(x / cap); }
  static MIXTAPE_DEVICE float slope(float y, float cap) {
    const float t = y / cap;
    return fma_f32(-t, t, 1.0f);
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
    dx[0] = in[1] * Op::slope(in[0], factor);
  }
};

#define KERNELS(OP, T)                                                                             \
  MIXTAPE_KERNEL(OP##_forward_##T, 256, UnaryParams p, Global<const T> x, Global<T> y) {           \
    stream(Streams<T, 1, 1>{{x}, {y}, {true}, {false}}, p.count, UnaryForward<OP##_op>{p.factor}); \
  }                                                                                                \
  MIXTAPE_KERNEL(OP##_backward_##T, 256, UnaryParams p, Global<const T> saved, Global<const T> dy, \
                 Global<T> dx) {                                                                   \
    stream(Streams<T, 2, 1>{{saved, dy}, {dx}, {true}, {p.accumulate != 0}}, p.count,              \
           UnaryBackward<OP##_op>{p.factor});                                                      \
  }
#define UNARY(OP) KERNELS(OP, f32) KERNELS(OP, bf16) KERNELS(OP, f16)
MIXTAPE_UNARY_OPS(UNARY)

}  // namespace mixtape
