#include <algorithm>
#include <cstring>

#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/core/bf16.h"
#include "mixtape/core/f16.h"
#include "mixtape/ops/layout/layout_params.h"
#include "mixtape/runtime/kernel_registry.h"

namespace mixtape {
namespace {

// What happens to one element, or a run of them.
template <class T>
struct Move {
  using Element = T;
  static void one(T from, T& to) { to = from; }
  static void run(const T* from, T* to, std::int64_t n) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
  }
};
template <class T>
struct Add {
  using Element = T;
  static void one(T from, T& to) { to = T(static_cast<float>(to) + static_cast<float>(from)); }
  static void run(const T* from, T* to, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) one(from[i], to[i]);
  }
};

template <class Op>
void runs(const HostCall& call) {
  using T = typename Op::Element;
  const auto& p = call.params<RunsParams>();
  const T* from = call.read<T>(0) + p.from_offset;
  T* to = call.write<T>(0) + p.to_offset;
  cpu::parallel_for(p.count * p.length, cpu::row_grain(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin, n = 0; i < end; i += n) {
      const std::int64_t row = i / p.length, at = i % p.length;
      n = std::min(p.length - at, end - i);
      Op::run(from + row * p.from_stride + at, to + row * p.to_stride + at, n);
    }
  });
}

// Position in x of the element of y whose coordinates, over all axes but `skip_a` and `skip_b`, are number i;
// and its position in y.
struct Corner {
  std::int64_t x = 0, y = 0;
};
Corner corner(const PermuteParams& p, std::int64_t i, std::int64_t skip_a, std::int64_t skip_b) {
  Corner c;
  std::int64_t y_stride = 1;
  for (std::int64_t a = p.rank - 1; a >= 0; --a) {
    if (a != skip_a && a != skip_b) {
      c.x += i % p.dims[a] * p.strides[a];
      c.y += i % p.dims[a] * y_stride;
      i /= p.dims[a];
    }
    y_stride *= p.dims[a];
  }
  return c;
}

// The last axis stays the last: whole runs move.
template <class Op, class T>
void permute_runs(const PermuteParams& p, const T* x, T* y) {
  const std::int64_t last = p.rank - 1, length = p.dims[last];
  std::int64_t count = 1;
  for (std::int64_t a = 0; a < last; ++a) count *= p.dims[a];
  cpu::parallel_for(count, cpu::row_grain(length), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      Op::run(x + corner(p, i, last, last).x, y + i * length, length);
    }
  });
}

// y[i, j] = x[j, i] for a tile that fits in the first-level cache.
template <class Op, class T>
void move_tile(const T* x, std::int64_t x_stride, T* y, std::int64_t y_stride, std::int64_t rows,
               std::int64_t cols) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) Op::one(x[j * x_stride + i], y[i * y_stride + j]);
  }
}

// Axis q is x's last: tiles of y's last axis and q turn over, for every position on the other axes.
template <class Op, class T>
void permute_tiles(const PermuteParams& p, const T* x, T* y, std::int64_t q) {
  constexpr std::int64_t kTile = 32;
  const std::int64_t last = p.rank - 1, rows = p.dims[q], cols = p.dims[last];
  const std::int64_t stripes = (rows + kTile - 1) / kTile;
  std::int64_t corners = 1, y_stride = 1;
  for (std::int64_t a = 0; a < last; ++a) corners *= a == q ? 1 : p.dims[a];
  for (std::int64_t a = q + 1; a <= last; ++a) y_stride *= p.dims[a];
  cpu::parallel_for(
      corners * stripes, cpu::row_grain(kTile * cols), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const Corner at = corner(p, i / stripes, q, last);
          const std::int64_t r = i % stripes * kTile;
          for (std::int64_t c = 0; c < cols; c += kTile) {
            move_tile<Op>(x + at.x + c * p.strides[last] + r, p.strides[last], y + at.y + r * y_stride + c,
                          y_stride, std::min(kTile, rows - r), std::min(kTile, cols - c));
          }
        }
      });
}

template <class Op>
void permute(const HostCall& call) {
  using T = typename Op::Element;
  const auto& p = call.params<PermuteParams>();
  const T* x = call.read<T>(0);
  T* y = call.write<T>(0);
  const std::int64_t* unit = std::find(p.strides, p.strides + p.rank, 1);
  const std::int64_t q = unit - p.strides;
  if (q == p.rank - 1) return permute_runs<Op>(p, x, y);
  permute_tiles<Op>(p, x, y, q);
}

template <class T>
void repeat_backward(const HostCall& call) {
  const auto& p = call.params<RepeatParams>();
  const T* dy = call.read<T>(0);
  T* dx = call.write<T>(0);
  cpu::parallel_for(p.rows, cpu::row_grain(p.times * p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * p.cols; i < end * p.cols; ++i) {
      const T* copies = dy + i / p.cols * p.times * p.cols + i % p.cols;
      float sum = 0.0f;
      for (std::int64_t t = 0; t < p.times; ++t) sum += static_cast<float>(copies[t * p.cols]);
      dx[i] = T(p.accumulate ? static_cast<float>(dx[i]) + sum : sum);
    }
  });
}

MIXTAPE_HOST_KERNEL("layout_runs_1_bytes", runs<Move<std::uint8_t>>);
MIXTAPE_HOST_KERNEL("layout_runs_2_bytes", runs<Move<std::uint16_t>>);
MIXTAPE_HOST_KERNEL("layout_runs_4_bytes", runs<Move<std::uint32_t>>);
MIXTAPE_HOST_KERNEL("layout_runs_add_f32", runs<Add<float>>);
MIXTAPE_HOST_KERNEL("layout_runs_add_bf16", runs<Add<bf16>>);
MIXTAPE_HOST_KERNEL("layout_runs_add_f16", runs<Add<f16>>);
MIXTAPE_HOST_KERNEL("permute_1_bytes", permute<Move<std::uint8_t>>);
MIXTAPE_HOST_KERNEL("permute_2_bytes", permute<Move<std::uint16_t>>);
MIXTAPE_HOST_KERNEL("permute_4_bytes", permute<Move<std::uint32_t>>);
MIXTAPE_HOST_KERNEL("permute_add_f32", permute<Add<float>>);
MIXTAPE_HOST_KERNEL("permute_add_bf16", permute<Add<bf16>>);
MIXTAPE_HOST_KERNEL("permute_add_f16", permute<Add<f16>>);
MIXTAPE_HOST_KERNEL("repeat_backward_f32", repeat_backward<float>);
MIXTAPE_HOST_KERNEL("repeat_backward_bf16", repeat_backward<bf16>);
MIXTAPE_HOST_KERNEL("repeat_backward_f16", repeat_backward<f16>);

}  // namespace
}  // namespace mixtape
