// Which way an axis order takes: runs that are copied whole where the last axis stays the last
// (permute_runs), tiles that turn over in the first-level cache where another one becomes the last or the
// last repeats (permute_tiles). Outputs larger than the caches are written past them (Move).
#include <algorithm>
#include <cstring>

#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/streams.h"
#include "mixtape/core/bf16.h"
#include "mixtape/core/f16.h"
#include "mixtape/ops/layout/layout_params.h"
#include "mixtape/runtime/kernel_registry.h"

namespace mixtape {
namespace {

// What happens to a run of elements; a large output that is only written is written past the caches.
template <class T>
struct Move {
  using Element = T;
  static void run(const T* from, T* to, std::int64_t n, bool is_large) {
    const std::size_t bytes = static_cast<std::size_t>(n) * sizeof(T);
    if (!is_large || bytes % 64 != 0) {
      std::memcpy(to, from, bytes);
      return;
    }
    cpu::copy_past_caches(reinterpret_cast<const std::byte*>(from), reinterpret_cast<std::byte*>(to), bytes);
  }
};
template <class T>
struct Add {
  using Element = T;
  static void run(const T* from, T* to, std::int64_t n, bool) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = T(static_cast<float>(to[i]) + static_cast<float>(from[i]));
  }
};

template <class Op>
void runs(const HostCall& call) {
  using T = typename Op::Element;
  const auto& p = call.params<RunsParams>();
  const T* from = call.read<T>(0) + p.from_offset;
  T* to = call.write<T>(0) + p.to_offset;
  const bool is_large = cpu::streams(to, p.count, p.length) && p.to_stride * sizeof(T) % 64 == 0;
  cpu::parallel_for(p.count * p.length, cpu::row_grain(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin, n = 0; i < end; i += n) {
      const std::int64_t row = i / p.length, at = i % p.length;
      n = std::min(p.length - at, end - i);
      Op::run(from + row * p.from_stride + at, to + row * p.to_stride + at, n, is_large);
    }
  });
}

template <class T>
void put(const HostCall& call) {
  const auto& p = call.params<PutParams>();
  const std::uint32_t start = call.read<std::uint32_t>(1)[0];
  if (start >= p.starts) return call.report_index(0, start, p.starts);
  const T* from = call.read<T>(0);
  T* to = call.write<T>(0) + start * p.step;
  for (std::int64_t i = 0; i < p.runs.count; ++i)
    std::copy_n(from + i * p.runs.from_stride, p.runs.length, to + i * p.runs.to_stride);
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
  const std::int64_t inner = last > 0 ? p.dims[last - 1] : 1, stride = last > 0 ? p.strides[last - 1] : 0;
  std::int64_t count = 1;
  for (std::int64_t a = 0; a < last; ++a) count *= p.dims[a];
  const bool is_large = cpu::streams(y, count, length);
  cpu::parallel_for(count, cpu::row_grain(length), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end;) {
      const T* from = x + corner(p, i, last, last).x;
      const std::int64_t stop = std::min(end, i + inner - i % inner);
      for (; i < stop; ++i, from += stride) Op::run(from, y + i * length, length, is_large);
    }
  });
}

// y[i, j] = x[j, i] for a tile that is turned over in the first-level cache, so that memory is read and
// written in whole lines. The next tile's lines are fetched meanwhile.
template <class Op, class T, std::int64_t kTile>
void move_tile(const T* x, std::int64_t x_stride, T* y, std::int64_t y_stride, std::int64_t rows,
               std::int64_t cols, bool is_large) {
  T tile[kTile][kTile];
  for (std::int64_t j = 0; j < cols; ++j) {
    __builtin_prefetch(x + (j + kTile) * x_stride);
    for (std::int64_t i = 0; i < rows; ++i) tile[i][j] = x[j * x_stride + i];
  }
  if (cols == kTile) {  // a length that the compiler knows
    for (std::int64_t i = 0; i < rows; ++i) Op::run(tile[i], y + i * y_stride, kTile, is_large);
    return;
  }
  for (std::int64_t i = 0; i < rows; ++i) Op::run(tile[i], y + i * y_stride, cols, is_large);
}

// Axis q is x's last: tiles of y's last axis and q turn over, for every position on the other axes.
template <class Op, class T>
void permute_tiles(const PermuteParams& p, const T* x, T* y, std::int64_t q) {
  constexpr std::int64_t kTile = 64 / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t last = p.rank - 1, rows = p.dims[q], cols = p.dims[last];
  const std::int64_t stripes = (rows + kTile - 1) / kTile;
  std::int64_t corners = 1, y_stride = 1;
  for (std::int64_t a = 0; a < last; ++a) corners *= a == q ? 1 : p.dims[a];
  for (std::int64_t a = q + 1; a <= last; ++a) y_stride *= p.dims[a];
  const bool is_large = cpu::streams(y, corners * rows, cols);
  cpu::parallel_for(
      corners * stripes, cpu::row_grain(kTile * cols), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const Corner at = corner(p, i / stripes, q, last);
          const std::int64_t r = i % stripes * kTile;
          for (std::int64_t c = 0; c < cols; c += kTile) {
            move_tile<Op, T, kTile>(x + at.x + c * p.strides[last] + r, p.strides[last],
                                    y + at.y + r * y_stride + c, y_stride, std::min(kTile, rows - r),
                                    std::min(kTile, cols - c), is_large);
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

MIXTAPE_HOST_KERNEL("layout_put_1_bytes", put<std::uint8_t>);
MIXTAPE_HOST_KERNEL("layout_put_2_bytes", put<std::uint16_t>);
MIXTAPE_HOST_KERNEL("layout_put_4_bytes", put<std::uint32_t>);
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
