#pragma once

#include <cstdint>

namespace mixtape {

// X(name): the kernels name_forward and name_backward.
#define MIXTAPE_UNARY_OPS(X) \
  X(scale) X(exp) X(log) X(sqrt) X(rsqrt) X(sigmoid) X(tanh) X(gelu) X(silu) X(softcap)
#define MIXTAPE_BINARY_OPS(X) X(add) X(sub) X(mul) X(div)

struct UnaryParams {
  std::int64_t count;
  float factor;  // of scale; the cap of softcap
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
