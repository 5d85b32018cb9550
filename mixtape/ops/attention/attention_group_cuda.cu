// 16 bits on Hopper's matrix units, whose products run beside what the threads do: up to 64 and 128 dimensions in
// multiples of 8. A block of two warp groups works on 128 queries or keys, 64 a group. As in attention_cuda.cu weights
// and their gradients are rounded to the inputs' type, and the backward takes bf16 alone.
#include "mixtape/backend/gpu/group_products.h"
#include "mixtape/ops/attention/attention_tensor_gpu.h"

namespace mixtape {

constexpr int kThreads = 2 * kGroupThreads;
constexpr float kMinusInfinity = -__builtin_huge_valf();

// The first of the 64 rows of this thread's group.
MIXTAPE_DEVICE int group_row() { return warp() / 4 * 64; }

// sums = a b^T over all dimensions: the group's 64 rows of a, Cols rows of b.
template <int D, int Cols, class T>
MIXTAPE_DEVICE void begin_rows(Shared<T> a, Shared<T> b, float (&sums)[Cols / 8][4]) {
  MIXTAPE_UNROLL
  for (int d = 0; d < D; d += 16)
    multiply_group<T, Cols>(sums, InPanels<T>{a, kQueries, group_row(), d}, InPanels<T>{b, Cols, 0, d},
                            d > 0);
  commit_products();
}

// out += weights b, Rows rows of b.
template <int D, int Rows, class T>
MIXTAPE_DEVICE void begin_weights(const std::uint32_t (&weights)[Rows / 8][2], Shared<T> b,
                                  float (&out)[D / 8][4]) {
  MIXTAPE_UNROLL
  for (int k = 0; k < Rows / 16; ++k) {
    const std::uint32_t left[4] = {weights[k * 2][0], weights[k * 2][1], weights[k * 2 + 1][0],
                                   weights[k * 2 + 1][1]};
    multiply_group<T, D>(out, left, InPanels<T>{b, Rows, k * 16, 0});
  }
  commit_products();
}

// Keys and values of a head, from a row on.
template <class T>
MIXTAPE_DEVICE TensorRows<T> key_rows(const AttentionParams& p, Global<const T> k, std::int64_t at,
                                      int first) {
  const int step = static_cast<int>(p.kv_heads * p.head_dim);
  return {k + (at + static_cast<std::int64_t>(first) * step), step, static_cast<int>(p.k_len) - first,
          static_cast<int>(p.head_dim)};
}

// Scores become weights 2^(unit * (s - max)); earlier sums shrink by `factor` as the maximum rises.
template <int Keys>
MIXTAPE_DEVICE void weigh(float unit, float (&scores)[Keys / 8][4], float (&max)[2], float (&sum)[2],
                          float (&factor)[2]) {
  MIXTAPE_UNROLL
  for (int half = 0; half < 2; ++half) {
    float highest = max[half];
    MIXTAPE_UNROLL
    for (int j = 0; j < Keys / 8; ++j)
      highest = max_f32(highest, max_f32(scores[j][half * 2], scores[j][half * 2 + 1]));
    highest = max_of_4(highest);
    const float base = highest == kMinusInfinity ? 0.0f : unit * highest;
    factor[half] = exp2_fast(fma_f32(max[half], unit, -base));
    max[half] = highest;
    sum[half] *= factor[half];
    MIXTAPE_UNROLL
    for (int j = 0; j < Keys / 8; ++j) {
      MIXTAPE_UNROLL
      for (int e = 0; e < 2; ++e) {
        float& s = scores[j][half * 2 + e];
        s = exp2_fast(fma_f32(s, unit, -base));
        sum[half] += s;
      }
    }
  }
}

// Once no product reads the weights of before: ptxas runs products one by one where registers that they read are written
// beside them.
template <class T, int Cols>
MIXTAPE_DEVICE void pack_weights(const float (&values)[Cols / 8][4], std::uint32_t (&weights)[Cols / 8][2]) {
  MIXTAPE_UNROLL
  for (int j = 0; j < Cols / 8; ++j) {
    weights[j][0] = pack_pair<T>(values[j][0], values[j][1]);
    weights[j][1] = pack_pair<T>(values[j][2], values[j][3]);
  }
}

// While the scores of a tile are made into weights, the weights of the tile before it meet their values.
template <class T, int D, int Keys>
MIXTAPE_DEVICE void attention_forward_group(const AttentionParams& p, Global<const T> q, Global<const T> k,
                                            Global<const T> v, Global<const float> sinks,
                                            Global<const std::int32_t> lengths, Global<T> y,
                                            Global<float> lse, Global<std::uint64_t> errors,
                                            Shared<T> memory) {
  const TensorTile tile = tensor_tile(p.batch, p.q_heads, p.q_len, kQueries, true);
  const Shared<T> queries = memory, keys = memory + kQueries * D, values = keys + 2 * Keys * D;
  // A sink is there from the start; scores are kept before they are scaled.
  const float start = p.has_sinks != 0 ? sinks[tile.head] / p.scale : kMinusInfinity;
  const float first_sum = p.has_sinks != 0 && lane() % 4 == 0 ? 1.0f : 0.0f;
  float out[1][D / 8][4] = {}, max[2] = {start, start}, sum[2] = {first_sum, first_sum};
  const int length = attention_length(p, lengths, tile.batch, errors);
  const int first_row = tile.first + warp() * 16;
  const AttentionRange all = rows_see(p, length, tile.first, tile.first + kQueries).any;
  const std::int64_t at =
      row_at(tile.batch, p.k_len, p.kv_heads, tile.head / (p.q_heads / p.kv_heads), p.head_dim, 0);
  const auto copy = [&](Global<const T> from, int first, Shared<T> to) {
    if (first < all.end) copy_to_panels<D, Keys, kThreads>(key_rows(p, from, at, first), to);
  };
  const auto arrive = [] {
    wait_copies<0>();
    publish_copies();
    barrier();
  };
  const auto hide = [&](int first, float(&scores)[1][Keys / 8][4]) {
    const AttentionRange by_all = rows_see(p, length, first_row, first_row + 16).all;
    if (first < by_all.begin || first + Keys > by_all.end)
      hide_scores<1, Keys>(
          first_row, first, [&](int i) { return keys_seen(p, length, i, i + 1); }, scores);
  };
  const float unit = p.scale * kLog2E;
  copy_to_panels<D, kQueries, kThreads>(query_rows(p, q, tile.batch, tile.head, tile.first), queries);
  copy(k, all.begin, keys);
  commit_copies();
  arrive();
  if (all.begin < all.end) {
    float scores[1][Keys / 8][4], factor[2];
    std::uint32_t weights[Keys / 8][2];
    copy(k, all.begin + Keys, keys + Keys * D);
    copy(v, all.begin, values);
    commit_copies();
    begin_products();
    begin_rows<D, Keys>(queries, keys, scores[0]);
    wait_products<0>(scores[0]);
    hide(all.begin, scores);
    weigh<Keys>(unit, scores[0], max, sum, factor);
    pack_weights<T, Keys>(scores[0], weights);
    int stage = 1;
    for (int first = all.begin + Keys; first < all.end; first += Keys, stage ^= 1) {
      arrive();  // keys of this tile, values of the one before it
      copy(k, first + Keys, keys + (stage ^ 1) * Keys * D);
      copy(v, first, values + stage * Keys * D);
      commit_copies();
      begin_products();
      begin_rows<D, Keys>(queries, keys + stage * Keys * D, scores[0]);
      begin_weights<D, Keys>(weights, values + (stage ^ 1) * Keys * D, out[0]);
      wait_products<1>(scores[0]);
      hide(first, scores);
      weigh<Keys>(unit, scores[0], max, sum, factor);
      wait_products<0>(out[0]);
      pack_weights<T, Keys>(scores[0], weights);
      MIXTAPE_UNROLL
      for (int j = 0; j < D / 8; ++j) {
        MIXTAPE_UNROLL
        for (int e = 0; e < 4; ++e) out[0][j][e] *= factor[e / 2];
      }
    }
    arrive();
    begin_products();
    begin_weights<D, Keys>(weights, values + (stage ^ 1) * Keys * D, out[0]);
    wait_products<0>(out[0]);
  }
  float factors[1][2];
  MIXTAPE_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + half * 8 + lane() / 4;
    const AttentionRange seen = keys_seen(p, length, row, row + 1);
    const float total = sum_of_4(sum[half]);
    factors[0][half] = seen.begin < seen.end ? 1.0f / total : 0.0f;
    if (row < p.q_len && lane() % 4 == 0) {
      lse[(tile.batch * p.q_heads + tile.head) * p.q_len + row] =
          seen.begin < seen.end ? fma_f32(p.scale, max[half], log_f32(total)) : p.scale * max[half];
    }
  }
  store_rows<D, 1>(out, factors, y + row_at(tile.batch, p.q_len, p.q_heads, tile.head, p.head_dim, 0),
                   p.q_heads * p.head_dim, first_row, static_cast<int>(p.q_len), static_cast<int>(p.head_dim),
                   false);
}

#define FORWARD_GROUP(T, D, KEYS)                                                                   \
  MIXTAPE_KERNEL(attention_forward_group_##T##_##D, kThreads, AttentionParams p, Global<const T> q, \
                 Global<const T> k, Global<const T> v, Global<const float> sinks,                   \
                 Global<const std::int32_t> lengths, Global<T> y, Global<float> lse,                \
                 Global<std::uint64_t> errors) {                                                    \
    MIXTAPE_SHARED_DYNAMIC(T, memory);                                                              \
    attention_forward_group<T, D, KEYS>(p, q, k, v, sinks, lengths, y, lse, errors, memory);        \
  }
FORWARD_GROUP(bf16, 64, 128)
FORWARD_GROUP(bf16, 128, 128)
FORWARD_GROUP(f16, 64, 128)
FORWARD_GROUP(f16, 128, 128)

// A block per 128 queries of a head, over the keys that they see.
template <int D, int Keys>
MIXTAPE_DEVICE void attention_dq_group(const AttentionParams& p, const TensorReads& in,
                                       Global<const std::int32_t> lengths, Global<bf16> dq,
                                       Global<std::uint64_t> errors, Shared<bf16> memory) {
  const Shared<bf16> queries = memory, gradients = memory + kQueries * D, stages = memory + 2 * kQueries * D;
  const TensorTile tile = tensor_tile(p.batch, p.q_heads, p.q_len, kQueries, true);
  const int length = attention_length(p, lengths, tile.batch, errors);
  const int first_row = tile.first + warp() * 16;
  const AttentionRange all = rows_see(p, length, tile.first, tile.first + kQueries).any;
  const std::int64_t at =
      row_at(tile.batch, p.k_len, p.kv_heads, tile.head / (p.q_heads / p.kv_heads), p.head_dim, 0);
  const auto copy_keys = [&](int first, int stage) {
    const Shared<bf16> to = stages + stage * 2 * Keys * D;
    if (first < all.end) {
      copy_to_panels<D, Keys, kThreads>(key_rows(p, in.k, at, first), to);
      copy_to_panels<D, Keys, kThreads>(key_rows(p, in.v, at, first), to + Keys * D);
    }
    commit_copies();
  };
  copy_to_panels<D, kQueries, kThreads>(query_rows(p, in.q, tile.batch, tile.head, tile.first), queries);
  copy_to_panels<D, kQueries, kThreads>(query_rows(p, in.dy, tile.batch, tile.head, tile.first), gradients);
  copy_keys(all.begin, 0);
  float base[2], delta[2], out[1][D / 8][4] = {};
  MIXTAPE_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + half * 8 + lane() / 4;
    const std::int64_t row_index = (tile.batch * p.q_heads + tile.head) * p.q_len + row;
    base[half] = row < p.q_len ? base_of(in.lse[row_index]) : 0.0f;
    delta[half] = row < p.q_len ? static_cast<float>(in.delta[row_index]) : 0.0f;
  }
  const float unit = p.scale * kLog2E;
  int stage = 0;
  for (int first = all.begin; first < all.end; first += Keys, stage ^= 1) {
    wait_copies<0>();
    publish_copies();
    barrier();
    copy_keys(first + Keys, stage ^ 1);
    const AttentionRange seen =
        rows_see(p, length, tile.first + group_row(), tile.first + group_row() + 64).any;
    if (first >= seen.end || first + Keys <= seen.begin) continue;
    const Shared<bf16> keys = stages + stage * 2 * Keys * D, values = keys + Keys * D;
    float scores[1][Keys / 8][4], dp[Keys / 8][4];
    begin_products();
    begin_rows<D, Keys>(queries, keys, scores[0]);
    begin_rows<D, Keys>(gradients, values, dp);
    wait_products<1>(scores[0]);
    const AttentionRange by_all = rows_see(p, length, first_row, first_row + 16).all;
    if (first < by_all.begin || first + Keys > by_all.end)
      hide_scores<1, Keys>(
          first_row, first, [&](int i) { return keys_seen(p, length, i, i + 1); }, scores);
    MIXTAPE_UNROLL
    for (int j = 0; j < Keys / 8; ++j) {
      MIXTAPE_UNROLL
      for (int e = 0; e < 4; ++e) scores[0][j][e] = exp2_fast(fma_f32(scores[0][j][e], unit, -base[e / 2]));
    }
    wait_products<0>(dp);
    std::uint32_t weights[Keys / 8][2];
    MIXTAPE_UNROLL
    for (int j = 0; j < Keys / 8; ++j) {
      MIXTAPE_UNROLL
      for (int half = 0; half < 2; ++half) {
        weights[j][half] = pack_pair<bf16>(scores[0][j][half * 2] * (dp[j][half * 2] - delta[half]),
                                           scores[0][j][half * 2 + 1] * (dp[j][half * 2 + 1] - delta[half]));
      }
    }
    begin_products();
    begin_weights<D, Keys>(weights, keys, out[0]);
    wait_products<0>(out[0]);
  }
  wait_copies<0>();
  const float factors[1][2] = {{p.scale, p.scale}};
  store_rows<D, 1>(out, factors, dq + row_at(tile.batch, p.q_len, p.q_heads, tile.head, p.head_dim, 0),
                   p.q_heads * p.head_dim, first_row, static_cast<int>(p.q_len), static_cast<int>(p.head_dim),
                   (p.accumulate & p.dq) != 0);
}

// A block per 128 keys, over the query heads of the group and the queries that see them. Scores lie with keys as rows,
// so that the weights are left operands as they come.
template <int D, int Queries>
MIXTAPE_DEVICE void attention_dkv_group(const AttentionParams& p, const TensorReads& in,
                                        Global<const std::int32_t> lengths, Global<bf16> dk, Global<bf16> dv,
                                        Global<std::uint64_t> errors, Shared<bf16> memory,
                                        Shared<float> row_values) {
  const Shared<bf16> keys = memory, values = memory + kQueries * D, stages = memory + 2 * kQueries * D;
  const TensorTile tile = tensor_tile(p.batch, p.kv_heads, p.k_len, kQueries, false);
  const int length = attention_length(p, lengths, tile.batch, errors);
  const int first_row = tile.first + warp() * 16, group = static_cast<int>(p.q_heads / p.kv_heads);
  const AttentionRange all = queries_that_see(p, length, tile.first, tile.first + kQueries);
  // The tiles of queries in order: head by head.
  int head = static_cast<int>(tile.head) * group, first = all.begin;
  const int end_head = all.begin < all.end ? head + group : head;
  const auto advance = [&](int& of_head, int& at) {
    at += Queries;
    if (at < all.end) return;
    at = all.begin;
    ++of_head;
  };
  const int batch = static_cast<int>(tile.batch);
  const auto copy_queries = [&](int of_head, int at, int stage) {
    if (of_head < end_head) {
      const Shared<bf16> to = stages + stage * 2 * Queries * D;
      copy_to_panels<D, Queries, kThreads>(query_rows(p, in.q, batch, of_head, at), to);
      copy_to_panels<D, Queries, kThreads>(query_rows(p, in.dy, batch, of_head, at), to + Queries * D);
    }
    commit_copies();
  };
  // Thread t < Queries brings the base of query t, the next ones its delta.
  const auto load_row_value = [&](int of_head, int at) {
    const int kind = flat_thread() / Queries, row = at + flat_thread() % Queries;
    if (of_head >= end_head || kind > 1 || row >= p.q_len) return 0.0f;
    const std::int64_t index = (batch * p.q_heads + of_head) * p.q_len + row;
    return kind == 0 ? base_of(in.lse[index]) : static_cast<float>(in.delta[index]);
  };
  const auto keep_row_value = [&](int stage, float value) {
    if (flat_thread() < 2 * Queries) row_values[stage * 2 * Queries + flat_thread()] = value;
  };
  const std::int64_t at = row_at(tile.batch, p.k_len, p.kv_heads, tile.head, p.head_dim, 0);
  copy_to_panels<D, kQueries, kThreads>(key_rows(p, in.k, at, tile.first), keys);
  copy_to_panels<D, kQueries, kThreads>(key_rows(p, in.v, at, tile.first), values);
  copy_queries(head, first, 0);
  keep_row_value(0, load_row_value(head, first));
  float out_k[1][D / 8][4] = {}, out_v[1][D / 8][4] = {};
  const float unit = p.scale * kLog2E;
  for (int stage = 0; head < end_head; advance(head, first), stage ^= 1) {
    wait_copies<0>();
    publish_copies();
    barrier();
    int next_head = head, next_first = first;
    advance(next_head, next_first);
    copy_queries(next_head, next_first, stage ^ 1);
    const float next_value = load_row_value(next_head, next_first);
    const AttentionRange any =
        queries_that_see(p, length, tile.first + group_row(), tile.first + group_row() + 64);
    if (first < any.end && first + Queries > any.begin) {
      const Shared<bf16> queries = stages + stage * 2 * Queries * D, gradients = queries + Queries * D;
      const Shared<float> bases = row_values + stage * 2 * Queries, deltas = bases + Queries;
      float scores[1][Queries / 8][4], dp[Queries / 8][4];
      begin_products();
      begin_rows<D, Queries>(keys, queries, scores[0]);
      begin_rows<D, Queries>(values, gradients, dp);
      wait_products<1>(scores[0]);
      const AttentionRange last = queries_that_see(p, length, first_row + 15, first_row + 16);
      const AttentionRange lowest = queries_that_see(p, length, first_row, first_row + 1);
      if (first < last.begin || first + Queries > last.end || first + Queries > lowest.end)
        hide_scores<1, Queries>(
            first_row, first, [&](int i) { return queries_that_see(p, length, i, i + 1); }, scores);
      std::uint32_t weights[Queries / 8][2], slopes[Queries / 8][2];
      MIXTAPE_UNROLL
      for (int j = 0; j < Queries / 8; ++j) {
        const Pack<float, 2> base = load_pack<2>(bases + (j * 8 + lane() % 4 * 2));
        MIXTAPE_UNROLL
        for (int e = 0; e < 4; ++e) {
          float& s = scores[0][j][e];
          s = exp2_fast(fma_f32(s, unit, -base.v[e % 2]));
        }
      }
      pack_weights<bf16, Queries>(scores[0], weights);
      begin_products();
      begin_weights<D, Queries>(weights, gradients, out_v[0]);
      wait_products<1>(dp);
      MIXTAPE_UNROLL
      for (int j = 0; j < Queries / 8; ++j) {
        const Pack<float, 2> delta = load_pack<2>(deltas + (j * 8 + lane() % 4 * 2));
        MIXTAPE_UNROLL
        for (int half = 0; half < 2; ++half) {
          slopes[j][half] = pack_pair<bf16>(scores[0][j][half * 2] * (dp[j][half * 2] - delta.v[0]),
                                            scores[0][j][half * 2 + 1] * (dp[j][half * 2 + 1] - delta.v[1]));
        }
      }
      begin_products();
      begin_weights<D, Queries>(slopes, queries, out_k[0]);
      wait_products<0>(out_k[0], out_v[0]);
    }
    keep_row_value(stage ^ 1, next_value);
  }
  wait_copies<0>();
  const std::int64_t step = p.kv_heads * p.head_dim;
  const int count = static_cast<int>(p.k_len), dim = static_cast<int>(p.head_dim);
  const float scaled[1][2] = {{p.scale, p.scale}}, plain[1][2] = {{1.0f, 1.0f}};
  if ((p.wanted & p.dk) != 0)
    store_rows<D, 1>(out_k, scaled, dk + at, step, first_row, count, dim, (p.accumulate & p.dk) != 0);
  if ((p.wanted & p.dv) != 0)
    store_rows<D, 1>(out_v, plain, dv + at, step, first_row, count, dim, (p.accumulate & p.dv) != 0);
}

#define DQ_GROUP(D, KEYS)                                                                                    \
  MIXTAPE_KERNEL(attention_dq_group_##D, kThreads, AttentionParams p, Global<const bf16> q,                  \
                 Global<const bf16> k, Global<const bf16> v, Global<const bf16> dy, Global<const float> lse, \
                 Global<const float> delta, Global<const std::int32_t> lengths, Global<bf16> dq,             \
                 Global<std::uint64_t> errors) {                                                             \
    MIXTAPE_SHARED_DYNAMIC(bf16, memory);                                                                    \
    attention_dq_group<D, KEYS>(p, {q, k, v, dy, lse, delta}, lengths, dq, errors, memory);                  \
  }
DQ_GROUP(64, 64)
DQ_GROUP(128, 64)

// The rows' values lie behind the tiles, which begin at a multiple of 1024 bytes.
#define DKV_GROUP(D, QUERIES)                                                                                \
  MIXTAPE_KERNEL(attention_dkv_group_##D, kThreads, AttentionParams p, Global<const bf16> q,                 \
                 Global<const bf16> k, Global<const bf16> v, Global<const bf16> dy, Global<const float> lse, \
                 Global<const float> delta, Global<const std::int32_t> lengths, Global<bf16> dk,             \
                 Global<bf16> dv, Global<std::uint64_t> errors) {                                            \
    MIXTAPE_SHARED_DYNAMIC(bf16, memory);                                                                    \
    MIXTAPE_SHARED(float, row_values, 4 * QUERIES);                                                          \
    attention_dkv_group<D, QUERIES>(p, {q, k, v, dy, lse, delta}, lengths, dk, dv, errors, memory,           \
                                    row_values);                                                             \
  }
DKV_GROUP(64, 64)
DKV_GROUP(128, 64)

}  // namespace mixtape
