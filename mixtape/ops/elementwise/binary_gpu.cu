#include "mixtape/backend/gpu/partials.h"
#include "mixtape/backend/gpu/streams.h"
#include "mixtape/ops/elementwise/elementwise_gpu_params.h"
#include "mixtape/ops/elementwise/elementwise_params.h"

namespace mixtape {

struct add_op {
  MIXTAPE_DEVICE void operator()(const float (&in)[2], float (&y)[1]) const { y[0] = in[0] + in[1]; }
};
struct sub_op {
  MIXTAPE_DEVICE void operator()(const float (&in)[2], float (&y)[1]) const { y[0] = in[0] - in[1]; }
};
struct mul_op {
  MIXTAPE_DEVICE void operator()(const float (&in)[2], float (&y)[1]) const { y[0] = in[0] * in[1]; }
};
struct div_op {
  MIXTAPE_DEVICE void operator()(const float (&in)[2], float (&y)[1]) const { y[0] = in[0] / in[1]; }
};

MIXTAPE_DEVICE bool a_is_maximum(float a, float b) { return a >= b || a != a; }
MIXTAPE_DEVICE bool a_is_minimum(float a, float b) { return a <= b || a != a; }
struct maximum_op {
  MIXTAPE_DEVICE void operator()(const float (&in)[2], float (&y)[1]) const {
    y[0] = a_is_maximum(in[0], in[1]) ? in[0] : in[1];
  }
};
struct minimum_op {
  MIXTAPE_DEVICE void operator()(const float (&in)[2], float (&y)[1]) const {
    y[0] = a_is_minimum(in[0], in[1]) ? in[0] : in[1];
  }
};
struct pow_op {
  MIXTAPE_DEVICE void operator()(const float (&in)[2], float (&y)[1]) const { y[0] = pow_f32(in[0], in[1]); }
};

#define FORWARD(OP, T)                                                                                       \
  MIXTAPE_KERNEL(OP##_forward_##T, 256, BinaryParams p, Global<const T> a, Global<const T> b, Global<T> y) { \
    await_earlier();                                                                                         \
    stream(Streams<T, 2, 1>{{a, b}, {y}, {true}, {false}}, p.count, OP##_op(),                               \
           Periods<2>{{p.a_count, p.b_count}, p.count});                                                     \
  }
#define BINARY(OP) FORWARD(OP, f32) FORWARD(OP, bf16) FORWARD(OP, f16)
MIXTAPE_BINARY_OPS(BINARY)

// The gradient of one operand from dy, that operand and the other one.
struct add_backward_op {
  static MIXTAPE_DEVICE float gradient(float dy, float, float) { return dy; }
};
struct sub_backward_op {
  static MIXTAPE_DEVICE float gradient(float dy, float, float) { return -dy; }
};
struct mul_backward_op {
  static MIXTAPE_DEVICE float gradient(float dy, float, float other) { return dy * other; }
};
struct div_backward_a_op {
  static MIXTAPE_DEVICE float gradient(float dy, float, float other) { return dy / other; }
};
// Two quotients instead of one by b^2, which could overflow.
struct div_backward_b_op {
  static MIXTAPE_DEVICE float gradient(float dy, float self, float other) {
    return -((dy / self) * (other / self));
  }
};
struct maximum_backward_a_op {
  static MIXTAPE_DEVICE float gradient(float dy, float self, float other) {
    return a_is_maximum(self, other) ? dy : 0.0f;
  }
};
struct maximum_backward_b_op {
  static MIXTAPE_DEVICE float gradient(float dy, float self, float other) {
    return a_is_maximum(other, self) ? 0.0f : dy;
  }
};
struct minimum_backward_a_op {
  static MIXTAPE_DEVICE float gradient(float dy, float self, float other) {
    return a_is_minimum(self, other) ? dy : 0.0f;
  }
};
struct minimum_backward_b_op {
  static MIXTAPE_DEVICE float gradient(float dy, float self, float other) {
    return a_is_minimum(other, self) ? 0.0f : dy;
  }
};
struct pow_backward_a_op {
  static MIXTAPE_DEVICE float gradient(float dy, float self, float other) {
    return other == 0.0f ? 0.0f : dy * (other * pow_f32(self, other - 1.0f));
  }
};
// dy a^b ln a, 0 where a is 0 and b isn't negative.
struct pow_backward_b_op {
  static MIXTAPE_DEVICE float gradient(float dy, float self, float other) {
    return other == 0.0f && self >= 0.0f ? 0.0f : dy * (pow_f32(other, self) * log_f32(other));
  }
};

template <class Op>
struct BinaryBackward {
  MIXTAPE_DEVICE void operator()(const float (&in)[3], float (&dx)[1]) const {
    dx[0] = Op::gradient(in[0], in[1], in[2]);
  }
};

#define BACKWARD(OP, T)                                                                           \
  MIXTAPE_KERNEL(OP##_##T, 256, BinaryBackwardParams p, Global<const T> dy, Global<const T> self, \
                 Global<const T> other, Global<T> dx) {                                           \
    await_earlier();                                                                              \
    stream(Streams<T, 3, 1>{{dy, self, other}, {dx}, {true}, {p.accumulate != 0}}, p.cols,        \
           BinaryBackward<OP##_op>(), Periods<3>{{p.cols, p.cols, p.other_count}, p.cols});       \
  }
#define BACKWARDS(OP) BACKWARD(OP, f32) BACKWARD(OP, bf16) BACKWARD(OP, f16)
MIXTAPE_BINARY_BACKWARDS(BACKWARDS)

// The sums over a block of rows of N columns per thread; threads_y rows side by side, added up in order.
template <class Op, class T, int N>
MIXTAPE_DEVICE void backward_sum(const BackwardSumParams& p, Global<const T> dy, Global<const T> self,
                                 Global<const T> other, Global<float> partials, Shared<float> rows) {
  const int width = threads_x() * N;
  const std::int64_t first = static_cast<std::int64_t>(block_x()) * width, col = first + thread_x() * N;
  const std::int64_t begin = block_y() * p.row_block;
  const std::int64_t end = begin + p.row_block < p.rows ? begin + p.row_block : p.rows;
  float sum[N] = {};
  if (col < p.cols) {
    const Pack<T, N> mine = load_pack<N>(self + col);
    MIXTAPE_UNROLL_4
    for (std::int64_t r = begin + thread_y(); r < end; r += threads_y()) {
      const Pack<T, N> d = load_pack<N>(dy + (r * p.cols + col));
      const Pack<T, N> o = load_pack<N>(other + (r * p.cols + col));
      MIXTAPE_UNROLL
      for (int c = 0; c < N; ++c) sum[c] += Op::gradient(to_f32(d.v[c]), to_f32(mine.v[c]), to_f32(o.v[c]));
    }
  }
  MIXTAPE_UNROLL
  for (int c = 0; c < N; ++c) rows[thread_y() * width + thread_x() * N + c] = sum[c];
  barrier();
  for (int c = flat_thread(); c < width && first + c < p.cols; c += block_threads()) {
    float total = 0.0f;
    for (int y = 0; y < threads_y(); ++y) total += rows[y * width + c];
    partials[block_y() * p.cols + first + c] = total;
  }
}

#define SUM_KERNEL(OP, T, NAME, N)                                                                       \
  MIXTAPE_KERNEL(OP##_sum_##T##NAME, 256, BackwardSumParams p, Global<const T> dy, Global<const T> self, \
                 Global<const T> other, Global<float> partials) {                                        \
    await_earlier();                                                                                     \
    MIXTAPE_SHARED(float, rows, 256 * (N));                                                              \
    backward_sum<OP##_op, T, N>(p, dy, self, other, partials, rows);                                     \
  }
#define SUM(OP, T)                          \
  SUM_KERNEL(OP, T, _packs, 16 / sizeof(T)) \
  SUM_KERNEL(OP, T, _ones, 1)
#define SUMS(OP) SUM(OP, f32) SUM(OP, bf16) SUM(OP, f16)
MIXTAPE_BINARY_BACKWARD_SUMS(SUMS)
#define ADD(T)                                                                                 \
  MIXTAPE_KERNEL(binary_backward_add_##T, 256, PartialsParams p, Global<const float> partials, \
                 Global<T> dx) {                                                               \
    await_earlier();                                                                           \
    MIXTAPE_SHARED(float, scratch, kPartialScratch);                                           \
    add_partials<T>(p, partials, dx, scratch);                                                 \
  }
MIXTAPE_VALUE_KERNELS(ADD)

}  // namespace mixtape
