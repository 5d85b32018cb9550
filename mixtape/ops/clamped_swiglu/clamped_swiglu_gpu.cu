#include "mixtape/backend/gpu/sigmoid.h"
#include "mixtape/backend/gpu/streams.h"
#include "mixtape/ops/clamped_swiglu/clamped_swiglu_params.h"

namespace mixtape {

// The parts as they are clamped; a NaN is not.
MIXTAPE_DEVICE float at_most(float x, float limit) { return x > limit ? limit : x; }
MIXTAPE_DEVICE float within_limits(float x, float limit) { return x < -limit ? -limit : at_most(x, limit); }

struct ClampedSwiglu {
  float alpha, limit;

  MIXTAPE_DEVICE void operator()(const float (&in)[2], float (&y)[1]) const {
    y[0] = silu_of(alpha * at_most(in[0], limit)) / alpha * (within_limits(in[1], limit) + 1.0f);
  }
};

#define FORWARD(T)                                                                                        \
  MIXTAPE_KERNEL(clamped_swiglu_forward_##T, 256, ClampedSwigluParams p, Global<const T> gate,            \
                 Global<const T> up, Global<T> y) {                                                       \
    await_earlier();                                                                                      \
    stream(Streams<T, 2, 1>{{gate, up}, {y}, {true}, {false}}, p.count, ClampedSwiglu{p.alpha, p.limit}); \
  }
MIXTAPE_VALUE_KERNELS(FORWARD)

// Both gradients from one pass over gate, up and dy.
struct ClampedSwigluBackward {
  float alpha, limit;

  MIXTAPE_DEVICE void operator()(const float (&in)[3], float (&d)[2]) const {
    const float gate = in[0], up = in[1], dy = in[2], x = alpha * at_most(gate, limit);
    const Sigmoids s = sigmoids(x);
    d[0] = gate > limit ? 0.0f : dy * (within_limits(up, limit) + 1.0f) * silu_slope(x, s);
    d[1] = up > limit || up < -limit ? 0.0f : dy * (mul_or_zero(s.of_x, x) / alpha);
  }
};

#define BACKWARD(T)                                                                             \
  MIXTAPE_KERNEL(clamped_swiglu_backward_##T, 256, ClampedSwigluParams p, Global<const T> gate, \
                 Global<const T> up, Global<const T> dy, Global<T> dgate, Global<T> dup) {      \
    await_earlier();                                                                            \
    const Streams<T, 3, 2> s{{gate, up, dy},                                                    \
                             {dgate, dup},                                                      \
                             {(p.wanted & p.dgate) != 0, (p.wanted & p.dup) != 0},              \
                             {(p.accumulate & p.dgate) != 0, (p.accumulate & p.dup) != 0}};     \
    stream(s, p.count, ClampedSwigluBackward{p.alpha, p.limit});                                \
  }
MIXTAPE_VALUE_KERNELS(BACKWARD)

}  // namespace mixtape
