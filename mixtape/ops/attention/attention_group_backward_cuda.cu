// sm_90a alone.
// Gradients on Hopper's matrix units, bf16 alone, as in attention_cuda.cu: up to 64 and 128 dimensions in multiples of 8.
#include "mixtape/ops/attention/attention_group_gpu.h"

namespace mixtape {

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
      copy_to_panels<D, Keys, kGroupsThreads>(key_rows(p, in.k, at, first), to);
      copy_to_panels<D, Keys, kGroupsThreads>(key_rows(p, in.v, at, first), to + Keys * D);
    }
    commit_copies();
  };
  copy_to_panels<D, kQueries, kGroupsThreads>(query_rows(p, in.q, tile.batch, tile.head, tile.first),
                                              queries);
  copy_to_panels<D, kQueries, kGroupsThreads>(query_rows(p, in.dy, tile.batch, tile.head, tile.first),
                                              gradients);
  copy_keys(all.begin, 0);
  float out[1][D / 8][4] = {};
  const RowValues of = row_values_of(p, in, tile, first_row);
  const float unit = p.scale * kLog2E;
  int stage = 0;
  for (int first = all.begin; first < all.end; first += Keys, stage ^= 1) {
    wait_copies<0>();
    publish_copies();
    barrier();
    const AttentionRange seen =
        rows_see(p, length, tile.first + group_row(), tile.first + group_row() + 64).any;
    if (first >= seen.end || first + Keys <= seen.begin) {
      copy_keys(first + Keys, stage ^ 1);
      continue;
    }
    const Shared<bf16> keys = stages + stage * 2 * Keys * D, values = keys + Keys * D;
    float scores[1][Keys / 8][4], dp[Keys / 8][4];
    begin_products();
    begin_rows<D, Keys>(queries, keys, scores[0]);
    begin_rows<D, Keys>(gradients, values, dp);
    copy_keys(first + Keys, stage ^ 1);
    wait_products<1>(scores[0]);
    const AttentionRange by_all = rows_see(p, length, first_row, first_row + 16).all;
    if (first < by_all.begin || first + Keys > by_all.end)
      hide_scores<1, Keys>(
          first_row, first, [&](int i) { return keys_seen(p, length, i, i + 1); }, scores);
    MIXTAPE_UNROLL
    for (int j = 0; j < Keys / 8; ++j) {
      MIXTAPE_UNROLL
      for (int e = 0; e < 4; ++e)
        scores[0][j][e] = exp2_fast(fma_f32(scores[0][j][e], unit, -of.base[e / 2]));
    }
    wait_products<0>(dp);
    std::uint32_t weights[Keys / 8][2];
    MIXTAPE_UNROLL
    for (int j = 0; j < Keys / 8; ++j) {
      MIXTAPE_UNROLL
      for (int half = 0; half < 2; ++half) {
        weights[j][half] =
            pack_pair<bf16>(scores[0][j][half * 2] * (dp[j][half * 2] - of.delta[half]),
                            scores[0][j][half * 2 + 1] * (dp[j][half * 2 + 1] - of.delta[half]));
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

// A block per Keys keys, 64 for each of its groups, over the query heads of their group and the queries that see them. Scores
// lie with keys as rows, so that the weights are left operands as they come.
template <int D, int Keys, int Queries>
MIXTAPE_DEVICE void attention_dkv_group(const AttentionParams& p, const TensorReads& in,
                                        Global<const std::int32_t> lengths, Global<bf16> dk, Global<bf16> dv,
                                        Global<std::uint64_t> errors, Shared<bf16> memory,
                                        Shared<float> row_values) {
  constexpr int kThreads = Keys / 64 * kGroupThreads;
  const Shared<bf16> keys = memory, values = memory + Keys * D, stages = memory + 2 * Keys * D;
  const TensorTile tile = tensor_tile(p.batch, p.kv_heads, p.k_len, Keys, false);
  const int length = attention_length(p, lengths, tile.batch, errors);
  const int first_row = tile.first + warp() * 16, group = static_cast<int>(p.q_heads / p.kv_heads);
  const AttentionRange all = queries_that_see(p, length, tile.first, tile.first + Keys);
  int head = static_cast<int>(tile.head) * group, first = all.begin;
  const int end_head = all.begin < all.end ? head + group : head;
  const int batch = static_cast<int>(tile.batch);
  const QueryTiles<Queries> tiles{p, in, batch, end_head, all};
  const auto copy_queries = [&](int of_head, int at, int stage) {
    if (of_head < end_head) {
      const Shared<bf16> to = stages + stage * 2 * Queries * D;
      copy_to_panels<D, Queries, kThreads>(query_rows(p, in.q, batch, of_head, at), to);
      copy_to_panels<D, Queries, kThreads>(query_rows(p, in.dy, batch, of_head, at), to + Queries * D);
    }
    commit_copies();
  };
  const std::int64_t at = row_at(tile.batch, p.k_len, p.kv_heads, tile.head, p.head_dim, 0);
  copy_to_panels<D, Keys, kThreads>(key_rows(p, in.k, at, tile.first), keys);
  copy_to_panels<D, Keys, kThreads>(key_rows(p, in.v, at, tile.first), values);
  copy_queries(head, first, 0);
  tiles.keep_row_value(row_values, 0, tiles.row_value(head, first));
  float out_k[1][D / 8][4] = {}, out_v[1][D / 8][4] = {};
  const float unit = p.scale * kLog2E;
  for (int stage = 0; head < end_head; tiles.advance(head, first), stage ^= 1) {
    wait_copies<0>();
    publish_copies();
    barrier();
    int next_head = head, next_first = first;
    tiles.advance(next_head, next_first);
    const float next_value = tiles.row_value(next_head, next_first);
    const AttentionRange any =
        queries_that_see(p, length, tile.first + group_row(), tile.first + group_row() + 64);
    if (first >= any.end || first + Queries <= any.begin) {
      copy_queries(next_head, next_first, stage ^ 1);
      tiles.keep_row_value(row_values, stage ^ 1, next_value);
      continue;
    }
    const Shared<bf16> queries = stages + stage * 2 * Queries * D, gradients = queries + Queries * D;
    const Shared<float> bases = row_values + stage * 2 * Queries, deltas = bases + Queries;
    float scores[1][Queries / 8][4], dp[Queries / 8][4];
    begin_products();
    begin_rows<D, Queries, Keys>(keys, queries, scores[0]);
    begin_rows<D, Queries, Keys>(values, gradients, dp);
    copy_queries(next_head, next_first, stage ^ 1);
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
    tiles.keep_row_value(row_values, stage ^ 1, next_value);
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
  MIXTAPE_KERNEL(attention_dq_group_##D, kGroupsThreads, AttentionParams p, Global<const bf16> q,            \
                 Global<const bf16> k, Global<const bf16> v, Global<const bf16> dy, Global<const float> lse, \
                 Global<const float> delta, Global<const std::int32_t> lengths, Global<bf16> dq,             \
                 Global<std::uint64_t> errors) {                                                             \
    await_earlier();                                                                                         \
    MIXTAPE_SHARED_DYNAMIC(bf16, memory);                                                                    \
    attention_dq_group<D, KEYS>(p, {q, k, v, dy, lse, delta}, lengths, dq, errors, memory);                  \
  }
DQ_GROUP(64, 64)
DQ_GROUP(128, 64)

// KEYS of a block: 64 where there are few tiles, so that multiprocessors share out long and short ones.
#define DKV_GROUP(D, KEYS)                                                                                \
  MIXTAPE_KERNEL(attention_dkv_group_##D##_##KEYS, KEYS / 64 * kGroupThreads, AttentionParams p,          \
                 Global<const bf16> q, Global<const bf16> k, Global<const bf16> v, Global<const bf16> dy, \
                 Global<const float> lse, Global<const float> delta, Global<const std::int32_t> lengths,  \
                 Global<bf16> dk, Global<bf16> dv, Global<std::uint64_t> errors) {                        \
    await_earlier();                                                                                      \
    MIXTAPE_SHARED_DYNAMIC(bf16, memory);                                                                 \
    MIXTAPE_SHARED(float, row_values, 4 * 64);                                                            \
    attention_dkv_group<D, KEYS, 64>(p, {q, k, v, dy, lse, delta}, lengths, dk, dv, errors, memory,       \
                                     row_values);                                                         \
  }
DKV_GROUP(64, 64)
DKV_GROUP(64, 128)
DKV_GROUP(128, 64)
DKV_GROUP(128, 128)

}  // namespace mixtape
