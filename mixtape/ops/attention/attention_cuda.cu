// bf16 on matrix units, for up to 64, 128 and 256 dimensions in multiples of 8. A block works on 128 queries;
// its warps share them by rows. Weights and their gradients are rounded to bf16 before the second product.
#include "mixtape/backend/gpu/tensor.h"
#include "mixtape/ops/attention/attention_params.h"
#include "mixtape/ops/attention/attention_range_gpu.h"

namespace mixtape {

constexpr int kQueries = 128;
constexpr float kLog2E = 1.44269504f;

// Rows of one head in memory: element (row, d) at p[row * step + d].
struct TensorRows {
  Global<const bf16> p;
  int step, count, dim;
};

MIXTAPE_DEVICE std::int64_t row_at(std::int64_t batch, std::int64_t length, std::int64_t heads,
                                   std::int64_t head, std::int64_t dim, int first) {
  return ((batch * length + first) * heads + head) * dim;
}
MIXTAPE_DEVICE TensorRows query_rows(const AttentionParams& p, Global<const bf16> q, std::int64_t batch,
                                     std::int64_t head, int first) {
  return {q + row_at(batch, p.q_len, p.q_heads, head, p.head_dim, first),
          static_cast<int>(p.q_heads * p.head_dim), static_cast<int>(p.q_len) - first,
          static_cast<int>(p.head_dim)};
}
// Starts the copy of Count rows to tile[row][d]; 0 past the last row and the last dimension.
template <int D, int Count, int Threads>
MIXTAPE_DEVICE void copy_rows(const TensorRows& in, Shared<bf16> tile) {
  constexpr int kChunks = D / 8;
  constexpr int kStep = Threads / kChunks;
  const int thread = hidden(flat_thread()), chunk = thread % kChunks, first = thread / kChunks;
  int to = swizzled<D>(first, chunk);
  int at = first * in.step + chunk * 8;
  const int end = chunk * 8 < in.dim ? in.count : 0;
  MIXTAPE_ROLLED
  for (int line = first; line < Count; line += kStep) {
    copy_async(tile, to, in.p + (line < end ? at : 0), line < end);
    to += kStep * D;
    at += kStep * in.step;
  }
}

// sums[m][j] = a b^T over all dimensions: rows first_a ... of a, Cols rows of b.
template <int D, int MTiles, int Cols>
MIXTAPE_DEVICE void multiply_rows(Shared<const bf16> a, int first_a, Shared<const bf16> b,
                                  float (&sums)[MTiles][Cols / 8][4]) {
  const int place_a = left_place<D, false>(), place_b = right_place<D, false>();
  MIXTAPE_UNROLL
  for (int d = 0; d < D; d += 16) {
    std::uint32_t left[MTiles][4];
    MIXTAPE_UNROLL
    for (int m = 0; m < MTiles; ++m) load_fragment<D, false>(a, place_a, first_a + m * 16, d, left[m]);
    MIXTAPE_UNROLL
    for (int j = 0; j < Cols / 16; ++j) {
      std::uint32_t right[4];
      load_fragment<D, false>(b, place_b, j * 16, d, right);
      MIXTAPE_UNROLL
      for (int m = 0; m < MTiles; ++m) {
        multiply_add(sums[m][j * 2], left[m], right[0], right[1]);
        multiply_add(sums[m][j * 2 + 1], left[m], right[2], right[3]);
      }
    }
  }
}

// Weights in bf16, as left operands: [m][j][half] holds columns 8j + 2q, 8j + 2q + 1 of row g or g + 8.
template <int MTiles, int Cols>
using Packed = std::uint32_t[MTiles][Cols / 8][2];

// out[m] += weights b, Rows rows of b.
template <int D, int MTiles, int Rows>
MIXTAPE_DEVICE void multiply_weights(const Packed<MTiles, Rows>& weights, Shared<const bf16> b,
                                     float (&out)[MTiles][D / 8][4]) {
  const int place = right_place<D, true>();
  MIXTAPE_UNROLL
  for (int k = 0; k < Rows / 16; ++k) {
    MIXTAPE_UNROLL
    for (int d = 0; d < D / 16; ++d) {
      std::uint32_t right[4];
      load_fragment<D, true>(b, place, d * 16, k * 16, right);
      MIXTAPE_UNROLL
      for (int m = 0; m < MTiles; ++m) {
        const std::uint32_t left[4] = {weights[m][k * 2][0], weights[m][k * 2][1], weights[m][k * 2 + 1][0],
                                       weights[m][k * 2 + 1][1]};
        multiply_add(out[m][d * 2], left, right[0], right[1]);
        multiply_add(out[m][d * 2 + 1], left, right[2], right[3]);
      }
    }
  }
}

// Stores factors[m][half] * sums, row g or g + 8 of each 16.
template <int D, int MTiles>
MIXTAPE_DEVICE void store_rows(const float (&sums)[MTiles][D / 8][4], const float (&factors)[MTiles][2],
                               Global<bf16> out, std::int64_t step, int first, int count, int dim,
                               bool accumulate) {
  MIXTAPE_UNROLL
  for (int m = 0; m < MTiles; ++m) {
    MIXTAPE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = first + m * 16 + half * 8 + lane() / 4;
      const float f = factors[m][half];
      MIXTAPE_UNROLL
      for (int j = 0; j < D / 8; j += 2) {
        const float(&l)[4] = sums[m][j];
        const float(&r)[4] = sums[m][j + 1];
        float v[4];
        const int col = j * 8 + gather_four(f * l[half * 2], f * l[half * 2 + 1], f * r[half * 2],
                                            f * r[half * 2 + 1], v);
        if (row < count && col < dim) store_values(v, out + (row * step + col), accumulate);
      }
    }
  }
}

// Sum and maximum over the four lanes of a row. A NaN may be lost in the maximum, not in the sum.
MIXTAPE_DEVICE float sum_of_4(float v) {
  v += lane_xor(v, 1);
  return v + lane_xor(v, 2);
}
MIXTAPE_DEVICE float larger(float a, float b) { return a > b ? a : b; }
MIXTAPE_DEVICE float max_of_4(float v) {
  v = larger(v, lane_xor(v, 1));
  return larger(v, lane_xor(v, 2));
}

// Scores that query rows do not see become -inf.
template <int MTiles, int Keys>
MIXTAPE_DEVICE void hide_keys(const AttentionParams& p, int length, int first_query, int first_key,
                              float (&scores)[MTiles][Keys / 8][4]) {
  MIXTAPE_UNROLL
  for (int m = 0; m < MTiles; ++m) {
    MIXTAPE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = first_query + m * 16 + half * 8 + lane() / 4;
      const AttentionRange seen = keys_seen(p, length, row, row + 1);
      MIXTAPE_UNROLL
      for (int j = 0; j < Keys / 8; ++j) {
        MIXTAPE_UNROLL
        for (int e = 0; e < 2; ++e) {
          const int key = first_key + j * 8 + lane() % 4 * 2 + e;
          float& s = scores[m][j][half * 2 + e];
          if (key < seen.begin || key >= seen.end) s = float_of(0xff800000u);
        }
      }
    }
  }
}

// Weights 2^(unit * (s - max)); earlier sums shrink as the maximum rises.
template <int D, int MTiles, int Keys>
MIXTAPE_DEVICE void softmax_step(float unit, const float (&scores)[MTiles][Keys / 8][4],
                                 Packed<MTiles, Keys>& weights, float (&max)[MTiles][2],
                                 float (&sum)[MTiles][2], float (&out)[MTiles][D / 8][4]) {
  MIXTAPE_UNROLL
  for (int m = 0; m < MTiles; ++m) {
    MIXTAPE_UNROLL
    for (int half = 0; half < 2; ++half) {
      float highest = max[m][half];
      MIXTAPE_UNROLL
      for (int j = 0; j < Keys / 8; ++j)
        highest = larger(highest, larger(scores[m][j][half * 2], scores[m][j][half * 2 + 1]));
      highest = max_of_4(highest);
      const float base = highest == float_of(0xff800000u) ? 0.0f : unit * highest;
      const float factor = exp2_fast(fma_f32(max[m][half], unit, -base));
      max[m][half] = highest;
      sum[m][half] *= factor;
      MIXTAPE_UNROLL
      for (int j = 0; j < Keys / 8; ++j) {
        const float low = exp2_fast(fma_f32(scores[m][j][half * 2], unit, -base));
        const float high = exp2_fast(fma_f32(scores[m][j][half * 2 + 1], unit, -base));
        sum[m][half] += low + high;
        weights[m][j][half] = pack_bf16(low, high);
      }
      MIXTAPE_UNROLL
      for (int j = 0; j < D / 8; ++j) {
        out[m][j][half * 2] *= factor;
        out[m][j][half * 2 + 1] *= factor;
      }
    }
  }
}

// A block per tile of queries of a head; those that see the most keys come first, heads of a group are
// neighbours.
struct TensorTile {
  std::int64_t batch, head;
  int first;
};
MIXTAPE_DEVICE TensorTile tensor_tile(std::int64_t batches, std::int64_t heads, std::int64_t length,
                                      int height, bool is_last_first) {
  const std::int64_t pairs = batches * heads, tiles = (length + height - 1) / height;
  const std::int64_t pair = block_x() % pairs, tile = block_x() / pairs;
  return {pair / heads, pair % heads, static_cast<int>((is_last_first ? tiles - 1 - tile : tile) * height)};
}

// The keys that any, and those that all of the query rows [begin, end) see.
struct RowsSee {
  AttentionRange any, all;
};
MIXTAPE_DEVICE RowsSee rows_see(const AttentionParams& p, int length, int begin, int end) {
  if (end > p.q_len) end = static_cast<int>(p.q_len);
  if (begin >= end) return {{0, 0}, {0, 0}};
  return {keys_seen(p, length, begin, end),
          {keys_seen(p, length, end - 1, end).begin, keys_seen(p, length, begin, begin + 1).end}};
}

// While scores are multiplied the values are on their way, meanwhile the next keys.
template <int D, int Keys, int MTiles, int Threads>
MIXTAPE_DEVICE void attention_forward_tensor(const AttentionParams& p, Global<const bf16> q,
                                             Global<const bf16> k, Global<const bf16> v,
                                             Global<const std::int32_t> lengths, Global<bf16> y,
                                             Global<float> lse, Global<std::uint64_t> errors,
                                             Shared<bf16> memory) {
  const auto block_tile = [&] { return tensor_tile(p.batch, p.q_heads, p.q_len, kQueries, true); };
  const Shared<bf16> queries = memory, keys = memory + kQueries * D, values = keys + Keys * D;
  const float lowest = float_of(0xff800000u);
  float out[MTiles][D / 8][4] = {}, max[MTiles][2], sum[MTiles][2] = {};
  MIXTAPE_UNROLL
  for (int m = 0; m < MTiles; ++m) max[m][0] = max[m][1] = lowest;
  const TensorTile tile = block_tile();
  const int length = attention_length(p, lengths, tile.batch, errors);
  const int first_row = tile.first + warp() * MTiles * 16;
  const AttentionRange all = rows_see(p, length, tile.first, tile.first + kQueries).any;
  std::int64_t at =
      row_at(tile.batch, p.k_len, p.kv_heads, tile.head / (p.q_heads / p.kv_heads), p.head_dim, all.begin);
  TensorRows rows{k + at, static_cast<int>(p.kv_heads * p.head_dim), static_cast<int>(p.k_len) - all.begin,
                  static_cast<int>(p.head_dim)};
  copy_rows<D, kQueries, Threads>(query_rows(p, q, tile.batch, tile.head, tile.first), queries);
  if (all.begin < all.end) copy_rows<D, Keys, Threads>(rows, keys);
  commit_copies();
  for (int first = all.begin; first < all.end; first += Keys) {
    wait_copies<0>();
    barrier();
    rows.p = v + at;
    copy_rows<D, Keys, Threads>(rows, values);
    commit_copies();
    const AttentionRange any = rows_see(p, length, first_row, first_row + MTiles * 16).any;
    const bool is_needed = first < any.end && first + Keys > any.begin;
    float scores[MTiles][Keys / 8][4] = {};
    if (is_needed) multiply_rows<D, MTiles, Keys>(queries, warp() * MTiles * 16, keys, scores);
    wait_copies<0>();
    barrier();
    at += Keys * rows.step;
    rows.p = k + at;
    rows.count -= Keys;
    if (first + Keys < all.end) copy_rows<D, Keys, Threads>(rows, keys);
    commit_copies();
    if (!is_needed) continue;
    const int row = hidden(first_row);
    const AttentionRange by_all = rows_see(p, length, row, row + MTiles * 16).all;
    if (first < by_all.begin || first + Keys > by_all.end)
      hide_keys<MTiles, Keys>(p, length, row, first, scores);
    Packed<MTiles, Keys> weights;
    softmax_step<D, MTiles, Keys>(p.scale * kLog2E, scores, weights, max, sum, out);
    multiply_weights<D, MTiles, Keys>(weights, values, out);
  }
  wait_copies<0>();
  const TensorTile mine = block_tile();
  float factors[MTiles][2];
  MIXTAPE_UNROLL
  for (int m = 0; m < MTiles; ++m) {
    MIXTAPE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + m * 16 + half * 8 + lane() / 4;
      const AttentionRange seen = keys_seen(p, length, row, row + 1);
      const float total = sum_of_4(sum[m][half]);
      factors[m][half] = seen.begin < seen.end ? 1.0f / total : 0.0f;
      if (row < p.q_len && lane() % 4 == 0) {
        lse[(mine.batch * p.q_heads + mine.head) * p.q_len + row] =
            seen.begin < seen.end ? fma_f32(p.scale, max[m][half], log_f32(total)) : lowest;
      }
    }
  }
  store_rows<D, MTiles>(out, factors, y + row_at(mine.batch, p.q_len, p.q_heads, mine.head, p.head_dim, 0),
                        p.q_heads * p.head_dim, first_row, static_cast<int>(p.q_len),
                        static_cast<int>(p.head_dim), false);
}

#define FORWARD_TENSOR(D, KEYS, MTILES, THREADS, BLOCKS)                                             \
  MIXTAPE_TENSOR_KERNEL(attention_forward_tensor_##D, THREADS, BLOCKS, AttentionParams p,            \
                        Global<const bf16> q, Global<const bf16> k, Global<const bf16> v,            \
                        Global<const std::int32_t> lengths, Global<bf16> y, Global<float> lse,       \
                        Global<std::uint64_t> errors) {                                              \
    MIXTAPE_SHARED_DYNAMIC(bf16, memory);                                                            \
    attention_forward_tensor<D, KEYS, MTILES, THREADS>(p, q, k, v, lengths, y, lse, errors, memory); \
  }
FORWARD_TENSOR(64, 64, 2, 128, 2)
FORWARD_TENSOR(128, 48, 2, 128, 2)
FORWARD_TENSOR(256, 64, 1, 256, 1)

}  // namespace mixtape
