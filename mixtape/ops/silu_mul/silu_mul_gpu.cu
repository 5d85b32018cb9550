#include "mixtape/backend/gpu/sigmoid.h"
#include "mixtape/backend/gpu/streams.h"
#include "mixtape/ops/silu_mul/silu_mul_params.h"

namespace mixtape {

template <class T>
struct SiluMul {
  MIXTAPE_DEVICE void operator()(const float (&in)[2], float (&y)[1]) const {
    y[0] = silu_of<T>(in[0]) * in[1];
  }
};

#define FORWARD(T)                                                                                     \
  MIXTAPE_KERNEL(silu_mul_forward_##T, 256, SiluMulParams p, Global<const T> gate, Global<const T> up, \
                 Global<T> y) {                                                                        \
    await_earlier();                                                                                   \
    stream(Streams<T, 2, 1>{{gate, up}, {y}, {true}, {false}}, p.count, SiluMul<T>());                 \
  }
MIXTAPE_VALUE_KERNELS(FORWARD)

// Both gradients from one pass over gate, up and dy.
template <class T>
struct SiluMulBackward {
  MIXTAPE_DEVICE void operator()(const float (&in)[3], float (&d)[2]) const {
    const float gate = in[0], up = in[1], dy = in[2];
    const Sigmoids s = sigmoids<T>(gate);
    d[0] = dy * up * silu_slope(gate, s);
    d[1] = dy * mul_or_zero(s.of_x, gate);
  }
};

#define BACKWARD(T)                                                                                     \
  MIXTAPE_KERNEL(silu_mul_backward_##T, 256, SiluMulParams p, Global<const T> gate, Global<const T> up, \
                 Global<const T> dy, Global<T> dgate, Global<T> dup) {                                  \
    await_earlier();                                                                                    \
    const Streams<T, 3, 2> s{{gate, up, dy},                                                            \
                             {dgate, dup},                                                              \
                             {(p.wanted & p.dgate) != 0, (p.wanted & p.dup) != 0},                      \
                             {(p.accumulate & p.dgate) != 0, (p.accumulate & p.dup) != 0}};             \
    stream(s, p.count, SiluMulBackward<T>());                                                           \
  }
MIXTAPE_VALUE_KERNELS(BACKWARD)

}  // namespace mixtape
