#pragma once

#include <cstdint>

namespace mixtape {

// X(name): the kernels name_forward and name_backward.
#define MIXTAPE_UNARY_OPS(X) \
  X(scale)                   \
  X(exp)                     \
  X(log)                     \
  X(sqrt)                    \
  X(rsqrt)                   \
  X(sigmoid) X(tanh) X(gelu) X(silu) X(softcap) X(shift) X(divide) X(reciprocal) X(power) X(relu) X(abs)
// X(name): the kernel name_forward.
#define MIXTAPE_BINARY_OPS(X) X(add) X(sub) X(mul) X(div) X(maximum) X(minimum) X(pow)
// X(name): the kernel name, the gradient of one operand where nothing is summed.
#define MIXTAPE_BINARY_BACKWARDS(X) \
  X(mul_backward)                   \
  X(div_backward_a)                 \
  X(div_backward_b)                 \
  X(maximum_backward_a)             \
  X(maximum_backward_b) X(minimum_backward_a) X(minimum_backward_b) X(pow_backward_a) X(pow_backward_b)
// X(name): the kernel name_sum, the gradient of an operand that repeats.
#define MIXTAPE_BINARY_BACKWARD_SUMS(X) \
  X(add_backward) X(sub_backward) X(mul_backward) X(div_backward_a) X(div_backward_b)

struct UnaryParams {
  std::int64_t count;
  float factor;  // of scale; c of softcap, shift, divide, reciprocal and power
  std::uint32_t accumulate;
};

// y[i] = f(a[i % a_count], b[i % b_count]).
struct BinaryParams {
  std::int64_t count;
  std::int64_t a_count;
  std::int64_t b_count;
};

// dx[i] = f(dy[i], self[i], other[i % other_count]), or summed over the rows of [rows, cols]:
// dx[c] = sum_r f(dy[r,c], self[c], other[r,c]).
struct BinaryBackwardParams {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t other_count;
  std::uint32_t accumulate;
};

}  // namespace mixtape
