#include "mixtape/backend/gpu/lanes.h"
#include "mixtape/ops/take_along_axis/take_along_axis_params.h"

namespace mixtape {

MIXTAPE_DEVICE std::int64_t column_of(const TakeAlongAxisParams& p, std::uint32_t bits) {
  return index_value(bits, p.index_is_signed != 0);
}
MIXTAPE_DEVICE bool is_column(const TakeAlongAxisParams& p, std::int64_t at) {
  return at >= 0 && at < p.cols;
}

// Four picks per thread, so that four reads of x are under way at a time.
template <class T>
MIXTAPE_DEVICE void take_along_axis_forward(const TakeAlongAxisParams& p, Global<const T> x,
                                            Global<const std::uint32_t> index, Global<T> y,
                                            Global<std::uint64_t> errors) {
  constexpr int kPicks = 4;
  const std::int64_t total = p.rows * p.k;
  const std::int64_t first = static_cast<std::int64_t>(block_x()) * kPicks * threads_x() + thread_x();
  std::uint32_t bits[kPicks] = {};
  T picked[kPicks];
  MIXTAPE_UNROLL
  for (int c = 0; c < kPicks; ++c) {
    const std::int64_t i = first + c * threads_x();
    if (i < total) bits[c] = index[i];
  }
  MIXTAPE_UNROLL
  for (int c = 0; c < kPicks; ++c) {
    const std::int64_t i = first + c * threads_x();
    const std::int64_t at = column_of(p, bits[c]);
    picked[c] = from_f32<T>(0.0f);
    if (i >= total) continue;
    if (is_column(p, at)) {
      picked[c] = x[divide(i, p.k) * p.cols + at];
    } else {
      report_index(errors, i, bits[c]);
    }
  }
  MIXTAPE_UNROLL
  for (int c = 0; c < kPicks; ++c) {
    const std::int64_t i = first + c * threads_x();
    if (i < total) y[i] = picked[c];
  }
}
#define FORWARD(T)                                                                               \
  MIXTAPE_KERNEL(take_along_axis_forward_##T, 256, TakeAlongAxisParams p, Global<const T> x,     \
                 Global<const std::uint32_t> index, Global<T> y, Global<std::uint64_t> errors) { \
    await_earlier();                                                                             \
    take_along_axis_forward<T>(p, x, index, y, errors);                                          \
  }
MIXTAPE_VALUE_KERNELS(FORWARD)

// Adds the sum of a column's gradients. As on the CPU, a sum of 0 leaves the element as it is.
template <class T>
MIXTAPE_DEVICE void add_sum(Global<T> out, float sum, bool accumulate) {
  if (sum == 0.0f) return;
  out[0] = from_f32<T>(accumulate ? to_f32(out[0]) + sum : sum);
}

// A row per warp, a pick per lane: the first lane with a column adds up those of the lanes above.
template <class T>
MIXTAPE_DEVICE void take_along_axis_backward(const TakeAlongAxisParams& p, Global<const T> dy,
                                             Global<const std::uint32_t> index, Global<T> dx,
                                             Global<std::uint64_t> errors) {
  const std::int64_t row = row_index();
  if (row >= p.rows) return;
  const int k = static_cast<int>(p.k), me = lane();
  const std::int64_t i = row * p.k + me;
  const std::uint32_t bits = me < k ? static_cast<std::uint32_t>(index[i]) : 0u;
  const float d = me < k ? to_f32(dy[i]) : 0.0f;
  const Global<T> out = dx + row * p.cols;
  if (p.accumulate == 0) zero_row(out, p.cols);
  lane_barrier();
  bool is_first = me < k;
  float sum = 0.0f;
  for (int other = 0; other < k; ++other) {
    const bool is_same = lane_shuffle(bits, other) == bits;
    const float other_d = lane_shuffle(d, other);
    if (is_same && other < me) is_first = false;
    if (is_same && other >= me) sum += other_d;
  }
  if (me >= k) return;
  const std::int64_t at = column_of(p, bits);
  if (!is_column(p, at)) return report_index(errors, i, bits);
  if (is_first) add_sum(out + at, sum, p.accumulate != 0);
}
constexpr int kWarpSums = 512;  // of the columns of a warp's rows

// A warp takes 32 / k rows, a pick per lane: the first lane with a column adds up those of the lanes above.
// The rows are put together in shared memory, so that dx is written once. cols is a multiple of the pack.
template <class T>
MIXTAPE_DEVICE void take_along_axis_backward_packs(const TakeAlongAxisParams& p, Global<const T> dy,
                                                   Global<const std::uint32_t> index, Global<T> dx,
                                                   Global<std::uint64_t> errors, Shared<float> sums) {
  constexpr int kPack = 16 / sizeof(T);
  const int k = static_cast<int>(p.k), cols = static_cast<int>(p.cols), me = lane();
  const int in_row = me % k, begin = me - in_row;
  const std::int64_t first_row = row_index() * (kLanes / k), i = first_row * k + me;
  const std::int64_t left = p.rows - first_row;
  const int rows = left <= 0 ? 0 : left < kLanes / k ? static_cast<int>(left) : kLanes / k;
  const bool has_pick = me < rows * k;
  const std::uint32_t bits = has_pick ? static_cast<std::uint32_t>(index[i]) : 0u;
  const float d = has_pick ? to_f32(dy[i]) : 0.0f;
  const Pack<float, 4> zeros{};
  for (int c = me * 4; c < rows * cols; c += kLanes * 4) store_pack(sums + c, zeros);
  bool is_first = has_pick;
  float sum = 0.0f;
  for (int j = 0; j < k; ++j) {
    const int other = begin + j < kLanes ? begin + j : kLanes - 1;
    const bool is_same = lane_shuffle(bits, other) == bits;
    const float other_d = lane_shuffle(d, other);
    if (is_same && j < in_row) is_first = false;
    if (is_same && j >= in_row) sum += other_d;
  }
  lane_barrier();
  const std::int64_t at = column_of(p, bits);
  if (has_pick && !is_column(p, at)) {
    report_index(errors, i, bits);
  } else if (is_first && sum != 0.0f) {
    sums[me / k * cols + static_cast<int>(at)] = sum;
  }
  lane_barrier();
  for (int c = me * kPack; c < rows * cols; c += kLanes * kPack) {
    Pack<T, kPack> out;
    MIXTAPE_UNROLL
    for (int n = 0; n < kPack; n += 4) {
      const auto four = load_pack<4>(sums + (c + n));
      MIXTAPE_UNROLL
      for (int v = 0; v < 4; ++v) out.v[n + v] = from_f32<T>(four.v[v]);
    }
    store_pack(dx + (first_row * p.cols + c), out);
  }
}

#define BACKWARD(T)                                                                                  \
  MIXTAPE_KERNEL(take_along_axis_backward_##T, 256, TakeAlongAxisParams p, Global<const T> dy,       \
                 Global<const std::uint32_t> index, Global<T> dx, Global<std::uint64_t> errors) {    \
    await_earlier();                                                                                 \
    take_along_axis_backward<T>(p, dy, index, dx, errors);                                           \
  }                                                                                                  \
  MIXTAPE_KERNEL(take_along_axis_backward_packs_##T, 256, TakeAlongAxisParams p, Global<const T> dy, \
                 Global<const std::uint32_t> index, Global<T> dx, Global<std::uint64_t> errors) {    \
    await_earlier();                                                                                 \
    MIXTAPE_SHARED(float, sums, 8 * kWarpSums);                                                      \
    take_along_axis_backward_packs<T>(p, dy, index, dx, errors, sums + warp() * kWarpSums);          \
  }
MIXTAPE_VALUE_KERNELS(BACKWARD)

constexpr int kChunk = 1024;  // picks of a row that a block compares with each other

// A chunk of a row's picks in shared memory, filled up to a multiple of 4 with gradients of 0.
struct Chunk {
  Shared<std::uint32_t> bits;
  Shared<float> d;
  int count;
};

template <class T>
MIXTAPE_DEVICE void load_chunk(const Chunk& chunk, Global<const std::uint32_t> index, Global<const T> dy) {
  const int j = thread_x();
  if (j >= (chunk.count + 3) / 4 * 4) return;
  chunk.bits[j] = j < chunk.count ? static_cast<std::uint32_t>(index[j]) : 0u;
  chunk.d[j] = j < chunk.count ? to_f32(dy[j]) : 0.0f;
}

MIXTAPE_DEVICE bool is_first_of(const Chunk& chunk, int j) {
  const std::uint32_t bits = chunk.bits[j];
  bool is_first = true;
  for (int i = 0; i < j; i += 4) {
    const auto pack = load_pack<4>(chunk.bits + i);
    MIXTAPE_UNROLL
    for (int c = 0; c < 4; ++c) is_first = is_first && (pack.v[c] != bits || i + c >= j);
  }
  return is_first;
}

// sum + the gradients of the picks from j on that have j's column, in order.
MIXTAPE_DEVICE float add_from(const Chunk& chunk, int j, float sum) {
  const std::uint32_t bits = chunk.bits[j];
  for (int i = j / 4 * 4; i < chunk.count; i += 4) {
    const auto pack = load_pack<4>(chunk.bits + i);
    const auto d = load_pack<4>(chunk.d + i);
    MIXTAPE_UNROLL
    for (int c = 0; c < 4; ++c)
      if (pack.v[c] == bits && i + c >= j) sum += d.v[c];
  }
  return sum;
}

// A row per block, up to kChunk picks, into a dx that holds what is added to.
template <class T>
MIXTAPE_DEVICE void take_along_axis_scatter(const TakeAlongAxisParams& p, Global<const T> dy,
                                            Global<const std::uint32_t> index, Global<T> dx,
                                            Global<std::uint64_t> errors, Chunk chunk) {
  const std::int64_t row = block_x(), first = row * p.k;
  chunk.count = static_cast<int>(p.k);
  load_chunk(chunk, index + first, dy + first);
  barrier();
  const int j = thread_x();
  if (j >= chunk.count) return;
  const std::int64_t at = column_of(p, chunk.bits[j]);
  if (!is_column(p, at)) return report_index(errors, first + j, chunk.bits[j]);
  if (is_first_of(chunk, j)) add_sum(dx + (row * p.cols + at), add_from(chunk, j, 0.0f), true);
}

// As many picks as one likes, chunk by chunk into sums [rows, cols].
template <class T>
MIXTAPE_DEVICE void take_along_axis_sums(const TakeAlongAxisParams& p, Global<const T> dy,
                                         Global<const std::uint32_t> index, Global<float> sums,
                                         Global<std::uint64_t> errors, Chunk chunk) {
  const std::int64_t row = block_x();
  for (std::int64_t done = 0; done < p.k; done += kChunk) {
    const std::int64_t first = row * p.k + done;
    chunk.count = static_cast<int>(p.k - done < kChunk ? p.k - done : kChunk);
    load_chunk(chunk, index + first, dy + first);
    barrier();
    const int j = thread_x();
    if (j < chunk.count) {
      const std::int64_t at = column_of(p, chunk.bits[j]);
      if (!is_column(p, at)) {
        report_index(errors, first + j, chunk.bits[j]);
      } else if (is_first_of(chunk, j)) {
        const Global<float> sum = sums + (row * p.cols + at);
        sum[0] = add_from(chunk, j, sum[0]);
      }
    }
    barrier();
  }
}

template <class T>
MIXTAPE_DEVICE void take_along_axis_add(const TakeAlongAxisParams& p, Global<const float> sums,
                                        Global<T> dx) {
  for (std::int64_t i = global_thread(); i < p.rows * p.cols; i += grid_threads()) {
    const float sum = sums[i];
    if (p.accumulate == 0) dx[i] = from_f32<T>(sum);
    if (p.accumulate != 0) add_sum(dx + i, sum, true);
  }
}

#define BACKWARD_LONG(T)                                                                                \
  MIXTAPE_KERNEL(take_along_axis_scatter_##T, 1024, TakeAlongAxisParams p, Global<const T> dy,          \
                 Global<const std::uint32_t> index, Global<T> dx, Global<std::uint64_t> errors) {       \
    await_earlier();                                                                                    \
    MIXTAPE_SHARED(std::uint32_t, bits, kChunk);                                                        \
    MIXTAPE_SHARED(float, d, kChunk);                                                                   \
    take_along_axis_scatter<T>(p, dy, index, dx, errors, {bits, d, 0});                                 \
  }                                                                                                     \
  MIXTAPE_KERNEL(take_along_axis_sums_##T, 1024, TakeAlongAxisParams p, Global<const T> dy,             \
                 Global<const std::uint32_t> index, Global<float> sums, Global<std::uint64_t> errors) { \
    await_earlier();                                                                                    \
    MIXTAPE_SHARED(std::uint32_t, bits, kChunk);                                                        \
    MIXTAPE_SHARED(float, d, kChunk);                                                                   \
    take_along_axis_sums<T>(p, dy, index, sums, errors, {bits, d, 0});                                  \
  }                                                                                                     \
  MIXTAPE_KERNEL(take_along_axis_add_##T, 256, TakeAlongAxisParams p, Global<const float> sums,         \
                 Global<T> dx) {                                                                        \
    await_earlier();                                                                                    \
    take_along_axis_add<T>(p, sums, dx);                                                                \
  }
MIXTAPE_VALUE_KERNELS(BACKWARD_LONG)

}  // namespace mixtape
