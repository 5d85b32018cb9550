// 16 bits on matrix units, for up to 64, 128 and 256 dimensions in multiples of 8. A block works on 128
// queries; its warps share them by rows. Weights and their gradients are rounded to the inputs' type before
// the second product, so the backward takes bf16 alone: f16 has not the range for gradients of scores.
#include "mixtape/ops/attention/attention_tensor_gpu.h"

namespace mixtape {

// sums[m][j] = a b^T over all dimensions: rows first_a ... of a, Cols rows of b.
template <int D, int MTiles, int Cols, class T>
MIXTAPE_DEVICE void multiply_rows(Shared<T> a, int first_a, Shared<T> b, float (&sums)[MTiles][Cols / 8][4]) {
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
        multiply_add<T>(sums[m][j * 2], left[m], right[0], right[1]);
        multiply_add<T>(sums[m][j * 2 + 1], left[m], right[2], right[3]);
      }
    }
  }
}

// out[m] += weights b, Rows rows of b.
template <int D, int MTiles, int Rows, class T>
MIXTAPE_DEVICE void multiply_weights(const Packed<MTiles, Rows>& weights, Shared<T> b,
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
        multiply_add<T>(out[m][d * 2], left, right[0], right[1]);
        multiply_add<T>(out[m][d * 2 + 1], left, right[2], right[3]);
      }
    }
  }
}

// Weights 2^(unit * (s - max)); earlier sums shrink as the maximum rises.
template <class T, int D, int MTiles, int Keys>
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
        highest = max_f32(highest, max_f32(scores[m][j][half * 2], scores[m][j][half * 2 + 1]));
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
        weights[m][j][half] = pack_pair<T>(low, high);
      }
      MIXTAPE_UNROLL
      for (int j = 0; j < D / 8; ++j) {
        out[m][j][half * 2] *= factor;
        out[m][j][half * 2 + 1] *= factor;
      }
    }
  }
}

// While scores are multiplied the values are on their way, meanwhile the next keys.
template <class T, int D, int Keys, int MTiles, int Threads>
MIXTAPE_DEVICE void attention_forward_tensor(const AttentionParams& p, Global<const T> q, Global<const T> k,
                                             Global<const T> v, Global<const float> sinks,
                                             Global<const std::int32_t> lengths, Global<T> y,
                                             Global<float> lse, Global<std::uint64_t> errors,
                                             Shared<T> memory) {
  const auto block_tile = [&] { return tensor_tile(p.batch, p.q_heads, p.q_len, kQueries, true); };
  const Shared<T> queries = memory, keys = memory + kQueries * D, values = keys + Keys * D;
  float out[MTiles][D / 8][4] = {}, max[MTiles][2], sum[MTiles][2];
  const TensorTile tile = block_tile();
  // A sink is there from the start; scores are kept before they are scaled.
  const float start = p.has_sinks != 0 ? sinks[tile.head] / p.scale : float_of(0xff800000u);
  const float first_sum = p.has_sinks != 0 && lane() % 4 == 0 ? 1.0f : 0.0f;
  MIXTAPE_UNROLL
  for (int m = 0; m < MTiles; ++m) {
    max[m][0] = max[m][1] = start;
    sum[m][0] = sum[m][1] = first_sum;
  }
  const int length = attention_length(p, lengths, tile.batch, errors);
  const int first_row = tile.first + warp() * MTiles * 16;
  const AttentionRange all = rows_see(p, length, tile.first, tile.first + kQueries).any;
  std::int64_t at =
      row_at(tile.batch, p.k_rows, p.kv_heads, tile.head / (p.q_heads / p.kv_heads), p.head_dim, all.begin);
  TensorRows<T> rows{k + at, static_cast<int>(p.kv_heads * p.head_dim), static_cast<int>(p.k_len) - all.begin,
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
      hide_scores<MTiles, Keys>(
          row, first, [&](int i) { return keys_seen(p, length, i, i + 1); }, scores);
    Packed<MTiles, Keys> weights;
    softmax_step<T, D, MTiles, Keys>(p.scale * kLog2E, scores, weights, max, sum, out);
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
            seen.begin < seen.end ? fma_f32(p.scale, max[m][half], log_f32(total)) : p.scale * max[m][half];
      }
    }
  }
  store_rows<D, MTiles>(out, factors, y + row_at(mine.batch, p.q_len, p.q_heads, mine.head, p.head_dim, 0),
                        p.q_heads * p.head_dim, first_row, static_cast<int>(p.q_len),
                        static_cast<int>(p.head_dim), false);
}

#define FORWARD_TENSOR_OF(T, D, KEYS, MTILES, THREADS, BLOCKS)                                              \
  MIXTAPE_KERNEL_BLOCKS(attention_forward_tensor_##T##_##D, THREADS, BLOCKS, AttentionParams p,             \
                        Global<const T> q, Global<const T> k, Global<const T> v, Global<const float> sinks, \
                        Global<const std::int32_t> lengths, Global<T> y, Global<float> lse,                 \
                        Global<std::uint64_t> errors) {                                                     \
    await_earlier();                                                                                        \
    MIXTAPE_SHARED_DYNAMIC(T, memory);                                                                      \
    attention_forward_tensor<T, D, KEYS, MTILES, THREADS>(p, q, k, v, sinks, lengths, y, lse, errors,       \
                                                          memory);                                          \
  }
#define FORWARD_TENSOR(T)                  \
  FORWARD_TENSOR_OF(T, 64, 64, 2, 128, 2)  \
  FORWARD_TENSOR_OF(T, 128, 48, 2, 128, 2) \
  FORWARD_TENSOR_OF(T, 256, 64, 1, 256, 1)
FORWARD_TENSOR(bf16)
FORWARD_TENSOR(f16)

// A block per 128 queries of a head, 16 a warp, over the keys that they see.
template <int D, int Keys, int Threads>
MIXTAPE_DEVICE void attention_dq_tensor(const AttentionParams& p, const TensorReads& in,
                                        Global<const std::int32_t> lengths, Global<bf16> dq,
                                        Global<std::uint64_t> errors, Shared<bf16> memory) {
  const auto block_tile = [&] { return tensor_tile(p.batch, p.q_heads, p.q_len, kQueries, true); };
  const Shared<bf16> queries = memory, gradients = memory + kQueries * D, stages = memory + 2 * kQueries * D;
  const TensorTile tile = block_tile();
  const int length = attention_length(p, lengths, tile.batch, errors);
  const int first_row = tile.first + warp() * 16;
  const AttentionRange all = rows_see(p, length, tile.first, tile.first + kQueries).any;
  const std::int64_t at =
      row_at(tile.batch, p.k_len, p.kv_heads, tile.head / (p.q_heads / p.kv_heads), p.head_dim, 0);
  const auto copy_keys = [&](int first, int stage) {
    if (first < all.end) {
      copy_rows<D, Keys, Threads>(key_rows(p, in.k, at, first), stages + stage * 2 * Keys * D);
      copy_rows<D, Keys, Threads>(key_rows(p, in.v, at, first), stages + (stage * 2 + 1) * Keys * D);
    }
    commit_copies();
  };
  copy_rows<D, kQueries, Threads>(query_rows(p, in.q, tile.batch, tile.head, tile.first), queries);
  copy_rows<D, kQueries, Threads>(query_rows(p, in.dy, tile.batch, tile.head, tile.first), gradients);
  copy_keys(all.begin, 0);
  float out[1][D / 8][4] = {};
  const RowValues of = row_values_of(p, in, tile, first_row);
  const float unit = p.scale * kLog2E;
  int stage = 0;
  for (int first = all.begin; first < all.end; first += Keys, stage ^= 1) {
    wait_copies<0>();
    barrier();
    copy_keys(first + Keys, stage ^ 1);
    const RowsSee mine = rows_see(p, length, first_row, first_row + 16);
    if (first >= mine.any.end || first + Keys <= mine.any.begin) continue;
    const Shared<bf16> keys = stages + stage * 2 * Keys * D, values = keys + Keys * D;
    float scores[1][Keys / 8][4] = {}, dp[1][Keys / 8][4] = {};
    multiply_rows<D, 1, Keys>(queries, warp() * 16, keys, scores);
    if (first < mine.all.begin || first + Keys > mine.all.end)
      hide_scores<1, Keys>(
          first_row, first, [&](int i) { return keys_seen(p, length, i, i + 1); }, scores);
    multiply_rows<D, 1, Keys>(gradients, warp() * 16, values, dp);
    Packed<1, Keys> weights;
    MIXTAPE_UNROLL
    for (int j = 0; j < Keys / 8; ++j) {
      MIXTAPE_UNROLL
      for (int half = 0; half < 2; ++half) {
        float ds[2];
        MIXTAPE_UNROLL
        for (int e = 0; e < 2; ++e) {
          ds[e] = exp2_fast(fma_f32(scores[0][j][half * 2 + e], unit, -of.base[half])) *
                  (dp[0][j][half * 2 + e] - of.delta[half]);
        }
        weights[0][j][half] = pack_pair<bf16>(ds[0], ds[1]);
      }
    }
    multiply_weights<D, 1, Keys>(weights, keys, out);
  }
  wait_copies<0>();
  const TensorTile mine = block_tile();
  const float factors[1][2] = {{p.scale, p.scale}};
  store_rows<D, 1>(out, factors, dq + row_at(mine.batch, p.q_len, p.q_heads, mine.head, p.head_dim, 0),
                   p.q_heads * p.head_dim, first_row, static_cast<int>(p.q_len), static_cast<int>(p.head_dim),
                   (p.accumulate & p.dq) != 0);
}

// A block per 128 keys, 16 a warp, over the query heads of the group and the queries that see them. Scores
// lie with keys as rows, so that the weights are left operands as they come.
template <int D, int Queries, int Threads, bool WantsKeys, bool WantsValues>
MIXTAPE_DEVICE void attention_dkv_tensor(const AttentionParams& p, const TensorReads& in,
                                         Global<const std::int32_t> lengths, Global<bf16> dk, Global<bf16> dv,
                                         Global<std::uint64_t> errors, Shared<bf16> memory,
                                         Shared<float> row_values) {
  constexpr int kRows = Threads / 2;
  const auto block_tile = [&] { return tensor_tile(p.batch, p.kv_heads, p.k_len, kRows, false); };
  const Shared<bf16> keys = memory, values = memory + kRows * D, stages = memory + 2 * kRows * D;
  const TensorTile tile = block_tile();
  const int length = attention_length(p, lengths, tile.batch, errors);
  const int first_row = tile.first + warp() * 16, group = static_cast<int>(p.q_heads / p.kv_heads);
  const AttentionRange all = queries_that_see(p, length, tile.first, tile.first + kRows);
  int head = static_cast<int>(tile.head) * group, first = all.begin;
  const int end_head = all.begin < all.end ? head + group : head;
  const int batch = static_cast<int>(tile.batch);
  const QueryTiles<Queries> tiles{p, in, batch, end_head, all};
  const auto copy_queries = [&](int of_head, int at, int stage) {
    if (of_head < end_head) {
      const Shared<bf16> to = stages + stage * 2 * Queries * D;
      copy_rows<D, Queries, Threads>(query_rows(p, in.q, batch, of_head, at), to);
      copy_rows<D, Queries, Threads>(query_rows(p, in.dy, batch, of_head, at), to + Queries * D);
    }
    commit_copies();
  };
  const std::int64_t row_offset = row_at(tile.batch, p.k_len, p.kv_heads, tile.head, p.head_dim, 0);
  copy_rows<D, kRows, Threads>(key_rows(p, in.k, row_offset, tile.first), keys);
  copy_rows<D, kRows, Threads>(key_rows(p, in.v, row_offset, tile.first), values);
  copy_queries(head, first, 0);
  tiles.keep_row_value(row_values, 0, tiles.row_value(head, first));
  const float unit = p.scale * kLog2E;
  float out_k[1][WantsKeys ? D / 8 : 1][4] = {}, out_v[1][WantsValues ? D / 8 : 1][4] = {};
  for (int stage = 0; head < end_head; stage ^= 1, tiles.advance(head, first)) {
    wait_copies<0>();
    barrier();
    int next_head = head, next_first = first;
    tiles.advance(next_head, next_first);
    copy_queries(next_head, next_first, stage ^ 1);
    const float next_value = tiles.row_value(next_head, next_first);
    const AttentionRange any = queries_that_see(p, length, first_row, first_row + 16);
    if (first < any.end && first + Queries > any.begin) {
      const Shared<bf16> queries = stages + stage * 2 * Queries * D, gradients = queries + Queries * D;
      const Shared<float> bases = row_values + stage * 2 * Queries, deltas = bases + Queries;
      float scores[1][Queries / 8][4] = {};
      multiply_rows<D, 1, Queries>(keys, warp() * 16, queries, scores);
      const AttentionRange last = queries_that_see(p, length, first_row + 15, first_row + 16);
      const AttentionRange lowest = queries_that_see(p, length, first_row, first_row + 1);
      if (first < last.begin || first + Queries > last.end || first + Queries > lowest.end)
        hide_scores<1, Queries>(
            first_row, first, [&](int i) { return queries_that_see(p, length, i, i + 1); }, scores);
      Packed<1, Queries> weights;
      MIXTAPE_UNROLL
      for (int j = 0; j < Queries / 8; ++j) {
        const Pack<float, 2> base = load_pack<2>(bases + (j * 8 + lane() % 4 * 2));
        MIXTAPE_UNROLL
        for (int half = 0; half < 2; ++half) {
          MIXTAPE_UNROLL
          for (int e = 0; e < 2; ++e) {
            float& s = scores[0][j][half * 2 + e];
            s = exp2_fast(fma_f32(s, unit, -base.v[e]));
          }
          weights[0][j][half] = pack_pair<bf16>(scores[0][j][half * 2], scores[0][j][half * 2 + 1]);
        }
      }
      if constexpr (WantsValues) multiply_weights<D, 1, Queries>(weights, gradients, out_v);
      if constexpr (WantsKeys) {
        float dp[1][Queries / 8][4] = {};
        multiply_rows<D, 1, Queries>(values, warp() * 16, gradients, dp);
        MIXTAPE_UNROLL
        for (int j = 0; j < Queries / 8; ++j) {
          const Pack<float, 2> delta = load_pack<2>(deltas + (j * 8 + lane() % 4 * 2));
          MIXTAPE_UNROLL
          for (int half = 0; half < 2; ++half) {
            weights[0][j][half] =
                pack_pair<bf16>(scores[0][j][half * 2] * (dp[0][j][half * 2] - delta.v[0]),
                                scores[0][j][half * 2 + 1] * (dp[0][j][half * 2 + 1] - delta.v[1]));
          }
        }
        multiply_weights<D, 1, Queries>(weights, queries, out_k);
      }
    }
    tiles.keep_row_value(row_values, stage ^ 1, next_value);
  }
  wait_copies<0>();
  const TensorTile mine = block_tile();
  const std::int64_t out_at = row_at(mine.batch, p.k_len, p.kv_heads, mine.head, p.head_dim, 0);
  if constexpr (WantsKeys) {
    const float factors[1][2] = {{p.scale, p.scale}};
    if ((p.wanted & p.dk) != 0)
      store_rows<D, 1>(out_k, factors, dk + out_at, p.kv_heads * p.head_dim, first_row,
                       static_cast<int>(p.k_len), static_cast<int>(p.head_dim), (p.accumulate & p.dk) != 0);
  }
  if constexpr (WantsValues) {
    const float factors[1][2] = {{1.0f, 1.0f}};
    if ((p.wanted & p.dv) != 0)
      store_rows<D, 1>(out_v, factors, dv + out_at, p.kv_heads * p.head_dim, first_row,
                       static_cast<int>(p.k_len), static_cast<int>(p.head_dim), (p.accumulate & p.dv) != 0);
  }
}

#define DQ_TENSOR(D, KEYS, BLOCKS)                                                                           \
  MIXTAPE_KERNEL_BLOCKS(attention_dq_tensor_##D, 256, BLOCKS, AttentionParams p, Global<const bf16> q,       \
                        Global<const bf16> k, Global<const bf16> v, Global<const bf16> dy,                   \
                        Global<const float> lse, Global<const float> delta,                                  \
                        Global<const std::int32_t> lengths, Global<bf16> dq, Global<std::uint64_t> errors) { \
    await_earlier();                                                                                         \
    MIXTAPE_SHARED_DYNAMIC(bf16, memory);                                                                    \
    attention_dq_tensor<D, KEYS, 256>(p, {q, k, v, dy, lse, delta}, lengths, dq, errors, memory);            \
  }
DQ_TENSOR(64, 32, 2)
DQ_TENSOR(128, 64, 1)
DQ_TENSOR(256, 32, 1)

#define DKV_TENSOR(NAME, D, QUERIES, WANTS_KEYS, WANTS_VALUES)                                              \
  MIXTAPE_KERNEL_BLOCKS(                                                                                    \
      attention_##NAME##_tensor_##D, 256, 1, AttentionParams p, Global<const bf16> q, Global<const bf16> k, \
      Global<const bf16> v, Global<const bf16> dy, Global<const float> lse, Global<const float> delta,      \
      Global<const std::int32_t> lengths, Global<bf16> dk, Global<bf16> dv, Global<std::uint64_t> errors) { \
    await_earlier();                                                                                        \
    MIXTAPE_SHARED_DYNAMIC(bf16, memory);                                                                   \
    MIXTAPE_SHARED(float, row_values, 4 * QUERIES);                                                         \
    attention_dkv_tensor<D, QUERIES, 256, WANTS_KEYS, WANTS_VALUES>(p, {q, k, v, dy, lse, delta}, lengths,  \
                                                                    dk, dv, errors, memory, row_values);    \
  }
DKV_TENSOR(dkv, 64, 64, true, true)
DKV_TENSOR(dkv, 128, 32, true, true)
DKV_TENSOR(dk, 256, 32, true, false)
DKV_TENSOR(dv, 256, 32, false, true)

}  // namespace mixtape
