#include "mixtape/backend/gpu/streams.h"
#include "mixtape/ops/layout/layout_gpu_params.h"

namespace mixtape {

// What happens to N elements at once.
template <class T, int N>
struct MoveUnits {
  using Element = T;
  static MIXTAPE_DEVICE Pack<T, N> put(const Pack<T, N>& from, Global<T>) { return from; }
};
template <class T, int N>
struct AddUnits {
  using Element = T;
  static MIXTAPE_DEVICE Pack<T, N> put(const Pack<T, N>& from, Global<T> to) {
    Pack<T, N> sum = load_pack<N>(to);
    MIXTAPE_UNROLL
    for (int c = 0; c < N; ++c) sum.v[c] = from_f32<T>(to_f32(sum.v[c]) + to_f32(from.v[c]));
    return sum;
  }
};

// Where unit i comes from and goes to.
struct RunsPlaces {
  RunsParams p;
  MIXTAPE_DEVICE std::int64_t count() const { return p.count * p.length; }
  MIXTAPE_DEVICE void of(std::int64_t i, std::int64_t& from, std::int64_t& to) const {
    const std::int64_t run = quotient(i, p.length, count()), at = i - run * p.length;
    from = p.from_offset + run * p.from_stride + at;
    to = p.to_offset + run * p.to_stride + at;
  }
};
struct PermutePlaces {
  PermuteParams p;
  std::int64_t total;
  MIXTAPE_DEVICE std::int64_t count() const { return total; }
  MIXTAPE_DEVICE void of(std::int64_t i, std::int64_t& from, std::int64_t& to) const {
    to = i;
    from = 0;
    MIXTAPE_UNROLL
    for (int a = kMaxAxes - 1; a >= 0; --a) {
      if (a >= p.rank) continue;
      const std::int64_t above = a == 0 ? 0 : quotient(i, p.dims[a], total);
      from += (i - above * p.dims[a]) * p.strides[a];
      i = above;
    }
  }
};

template <class T, int N, template <class, int> class Op, class Places>
MIXTAPE_DEVICE void move_units(const Places& places, Global<const T> x, Global<T> y) {
  const std::int64_t begin = static_cast<std::int64_t>(block_x()) * threads_x() * kLayoutUnits + thread_x();
  Pack<T, N> held[kLayoutUnits];
  std::int64_t to[kLayoutUnits];
  MIXTAPE_UNROLL
  for (int u = 0; u < kLayoutUnits; ++u) {
    const std::int64_t i = begin + u * threads_x();
    if (i >= places.count()) break;
    std::int64_t from = 0;
    places.of(i, from, to[u]);
    held[u] = load_pack<N>(x + from * N);
  }
  MIXTAPE_UNROLL
  for (int u = 0; u < kLayoutUnits; ++u) {
    if (begin + u * threads_x() >= places.count()) break;
    store_pack(y + to[u] * N, Op<T, N>::put(held[u], y + to[u] * N));
  }
}

MIXTAPE_DEVICE std::int64_t elements(const PermuteParams& p) {
  std::int64_t count = 1;
  MIXTAPE_UNROLL
  for (int a = 0; a < kMaxAxes; ++a) {
    if (a < p.rank) count *= p.dims[a];
  }
  return count;
}

// Tiles go through shared memory, so that both sides are read and written along their rows.
template <class T, template <class, int> class Op>
MIXTAPE_DEVICE void turn_tiles(const TurnParams& p, Global<const T> x, Global<T> y, Shared<T> tile) {
  constexpr int kTile = turn_tile(sizeof(T)), kWidth = kTile + 4 / sizeof(T), kRows = 8;
  std::int64_t i = block_x();
  const std::int64_t c = i % p.col_tiles * kTile;
  i /= p.col_tiles;
  const std::int64_t r = i % p.row_tiles * kTile;
  i /= p.row_tiles;
  std::int64_t x_at = c * p.x_stride + r, y_at = r * p.y_stride + c;
  MIXTAPE_UNROLL
  for (int a = kMaxAxes - 1; a >= 0; --a) {
    if (a >= p.rank) continue;
    const std::int64_t at = i % p.dims[a];
    x_at += at * p.x_strides[a];
    y_at += at * p.y_strides[a];
    i /= p.dims[a];
  }
  MIXTAPE_UNROLL
  for (int j = 0; j < kTile; j += kRows) {
    MIXTAPE_UNROLL
    for (int k = 0; k < kTile; k += kLanes) {
      const int col = j + thread_y(), row = k + thread_x();
      if (c + col < p.cols && r + row < p.rows) tile[col * kWidth + row] = x[x_at + col * p.x_stride + row];
    }
  }
  barrier();
  MIXTAPE_UNROLL
  for (int j = 0; j < kTile; j += kRows) {
    MIXTAPE_UNROLL
    for (int k = 0; k < kTile; k += kLanes) {
      const int row = j + thread_y(), col = k + thread_x();
      if (c + col >= p.cols || r + row >= p.rows) continue;
      const Global<T> to = y + (y_at + row * p.y_stride + col);
      to[0] = Op<T, 1>::put(Pack<T, 1>{{tile[col * kWidth + row]}}, to).v[0];
    }
  }
}

// Units of N elements, one per thread.
template <class T, int N>
MIXTAPE_DEVICE void put_units(const PutParams& p, Global<const T> x, Global<const std::uint32_t> start,
                              Global<T> y, Global<std::uint64_t> errors) {
  const std::int64_t count = p.runs.count * p.runs.length, i = global_thread();
  const std::uint32_t first = start[0];
  if (first >= p.starts) {
    if (i == 0) report_index(errors, 0, first);
    return;
  }
  if (i >= count) return;
  const std::int64_t row = quotient(i, p.runs.length, count), at = i - row * p.runs.length;
  store_pack(y + (row * p.runs.to_stride + first * p.step + at) * N,
             load_pack<N>(x + (row * p.runs.from_stride + at) * N));
}
#define PUT(NAME, T, N)                                                                                     \
  MIXTAPE_KERNEL(layout_put_##NAME, 256, PutParams p, Global<const T> x, Global<const std::uint32_t> start, \
                 Global<T> y, Global<std::uint64_t> errors) {                                               \
    await_earlier();                                                                                        \
    put_units<T, N>(p, x, start, y, errors);                                                                \
  }
PUT(1_bytes, std::uint8_t, 1)
PUT(2_bytes, std::uint16_t, 1)
PUT(4_bytes, std::uint32_t, 1)
PUT(16_bytes, std::uint32_t, 4)

#define UNITS(NAME, T, N, OP)                                                             \
  MIXTAPE_KERNEL(layout_runs_##NAME, 256, RunsParams p, Global<const T> x, Global<T> y) { \
    await_earlier();                                                                      \
    move_units<T, N, OP>(RunsPlaces{p}, x, y);                                            \
  }                                                                                       \
  MIXTAPE_KERNEL(permute_##NAME, 256, PermuteParams p, Global<const T> x, Global<T> y) {  \
    await_earlier();                                                                      \
    move_units<T, N, OP>(PermutePlaces{p, elements(p)}, x, y);                            \
  }
#define TURN(NAME, T, OP)                                                                   \
  MIXTAPE_KERNEL(permute_turn_##NAME, 256, TurnParams p, Global<const T> x, Global<T> y) {  \
    await_earlier();                                                                        \
    MIXTAPE_SHARED(T, tile, turn_tile(sizeof(T)) * (turn_tile(sizeof(T)) + 4 / sizeof(T))); \
    turn_tiles<T, OP>(p, x, y, tile);                                                       \
  }
UNITS(1_bytes, std::uint8_t, 1, MoveUnits)
UNITS(2_bytes, std::uint16_t, 1, MoveUnits)
UNITS(4_bytes, std::uint32_t, 1, MoveUnits)
UNITS(16_bytes, std::uint32_t, 4, MoveUnits)
UNITS(add_f32, f32, 1, AddUnits)
UNITS(add_bf16, bf16, 1, AddUnits)
UNITS(add_f16, f16, 1, AddUnits)
UNITS(add_f32_packs, f32, 4, AddUnits)
UNITS(add_bf16_packs, bf16, 8, AddUnits)
UNITS(add_f16_packs, f16, 8, AddUnits)
TURN(1_bytes, std::uint8_t, MoveUnits)
TURN(2_bytes, std::uint16_t, MoveUnits)
TURN(4_bytes, std::uint32_t, MoveUnits)
TURN(add_f32, f32, AddUnits)
TURN(add_bf16, bf16, AddUnits)
TURN(add_f16, f16, AddUnits)

// dx[r, c] (+)= sum over t of dy[r, t, c], N columns per thread.
template <class T, int N>
MIXTAPE_DEVICE void repeat_backward(const RepeatParams& p, Global<const T> dy, Global<T> dx) {
  const std::int64_t count = p.rows * p.cols, i = global_thread() * N;
  if (i >= count) return;
  const std::int64_t row = quotient(i, p.cols, count);
  const Global<const T> copies = dy + (row * p.times * p.cols + (i - row * p.cols));
  float sum[N] = {};
  MIXTAPE_UNROLL_4
  for (std::int64_t t = 0; t < p.times; ++t) {
    const Pack<T, N> copy = load_pack<N>(copies + t * p.cols);
    MIXTAPE_UNROLL
    for (int c = 0; c < N; ++c) sum[c] += to_f32(copy.v[c]);
  }
  Pack<T, N> out;
  if (p.accumulate != 0) out = load_pack<N>(dx + i);
  MIXTAPE_UNROLL
  for (int c = 0; c < N; ++c) out.v[c] = from_f32<T>(p.accumulate != 0 ? to_f32(out.v[c]) + sum[c] : sum[c]);
  store_pack(dx + i, out);
}

#define REPEAT(T)                                                                                      \
  MIXTAPE_KERNEL(repeat_backward_##T##_packs, 256, RepeatParams p, Global<const T> dy, Global<T> dx) { \
    await_earlier();                                                                                   \
    repeat_backward<T, 16 / sizeof(T)>(p, dy, dx);                                                     \
  }                                                                                                    \
  MIXTAPE_KERNEL(repeat_backward_##T##_ones, 256, RepeatParams p, Global<const T> dy, Global<T> dx) {  \
    await_earlier();                                                                                   \
    repeat_backward<T, 1>(p, dy, dx);                                                                  \
  }
MIXTAPE_VALUE_KERNELS(REPEAT)

}  // namespace mixtape
