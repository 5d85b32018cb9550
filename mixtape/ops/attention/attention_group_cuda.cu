// sm_90a alone.
// 16 bits on Hopper's matrix units, whose products run beside what the threads do: up to 64 and 128 dimensions in
// multiples of 8. As in attention_cuda.cu weights are rounded to the inputs' type.
#include "mixtape/ops/attention/attention_group_gpu.h"

namespace mixtape {

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

// While the scores of a tile are made into weights, the weights of the tile before it meet their values. The weights are
// packed once no product reads those of before: ptxas runs products one by one where registers that they read are written
// beside them.
template <class T, int D>
MIXTAPE_DEVICE void attention_forward_group(const AttentionParams& p, Global<const T> q, Global<const T> k,
                                            Global<const T> v, Global<const float> sinks,
                                            Global<const std::int32_t> lengths, Global<T> y,
                                            Global<float> lse, Global<std::uint64_t> errors,
                                            Shared<T> memory) {
  constexpr int kKeys = 128;
  const TensorTile tile = tensor_tile(p.batch, p.q_heads, p.q_len, kQueries, true);
  const Shared<T> queries = memory, keys = memory + kQueries * D, values = keys + 2 * kKeys * D;
  // A sink is there from the start; scores are kept before they are scaled.
  const float start = p.has_sinks != 0 ? sinks[tile.head] / p.scale : kMinusInfinity;
  const float first_sum = p.has_sinks != 0 && lane() % 4 == 0 ? 1.0f : 0.0f;
  float out[1][D / 8][4] = {}, max[2] = {start, start}, sum[2] = {first_sum, first_sum};
  const int length = attention_length(p, lengths, tile.batch, errors);
  const int first_row = tile.first + warp() * 16;
  const AttentionRange all = rows_see(p, length, tile.first, tile.first + kQueries).any;
  const int tiles = tiles_of(all, kKeys);
  const std::int64_t at =
      row_at(tile.batch, p.k_rows, p.kv_heads, tile.head / (p.q_heads / p.kv_heads), p.head_dim, 0);
  const auto copy = [&](Global<const T> from, int i, Shared<T> to) {
    if (i < tiles)
      copy_to_panels<D, kKeys, kGroupsThreads>(key_rows(p, from, at, all.begin + i * kKeys),
                                               to + i % 2 * kKeys * D);
  };
  const auto arrive = [] {
    wait_copies<0>();
    publish_copies();
    barrier();
  };
  const auto hide = [&](int i, float(&scores)[1][kKeys / 8][4]) {
    const int first = all.begin + i * kKeys;
    const AttentionRange by_all = rows_see(p, length, first_row, first_row + 16).all;
    if (first < by_all.begin || first + kKeys > by_all.end)
      hide_scores<1, kKeys>(
          first_row, first, [&](int row) { return keys_seen(p, length, row, row + 1); }, scores);
  };
  const float unit = p.scale * kLog2E;
  copy_to_panels<D, kQueries, kGroupsThreads>(query_rows(p, q, tile.batch, tile.head, tile.first), queries);
  copy(k, 0, keys);
  commit_copies();
  arrive();
  if (tiles > 0) {
    float scores[1][kKeys / 8][4] = {}, factor[2];
    std::uint32_t weights[kKeys / 8][2];
    begin_products();
    begin_rows<D, kKeys>(queries, keys, scores[0]);
    copy(k, 1, keys);
    copy(v, 0, values);
    commit_copies();
    wait_products<0>(scores[0]);
    hide(0, scores);
    weigh<kKeys>(unit, scores[0], max, sum, factor);
    pack_weights<T, kKeys>(scores[0], weights);
    MIXTAPE_ROLLED
    for (int i = 1; i < tiles; ++i) {
      arrive();  // keys of tile i, values of the one before it
      begin_products();
      begin_rows<D, kKeys>(queries, keys + i % 2 * kKeys * D, scores[0]);
      begin_weights<D, kKeys>(weights, values + (i - 1) % 2 * kKeys * D, out[0]);
      copy(k, i + 1, keys);
      copy(v, i, values);
      commit_copies();
      wait_products<1>(scores[0]);
      hide(i, scores);
      weigh<kKeys>(unit, scores[0], max, sum, factor);
      wait_products<0>(out[0]);
      pack_weights<T, kKeys>(scores[0], weights);
      MIXTAPE_UNROLL
      for (int j = 0; j < D / 8; ++j) {
        MIXTAPE_UNROLL
        for (int e = 0; e < 4; ++e) out[0][j][e] *= factor[e / 2];
      }
    }
    arrive();
    begin_products();
    begin_weights<D, kKeys>(weights, values + (tiles - 1) % 2 * kKeys * D, out[0]);
    wait_products<0>(out[0]);
  }
  wait_copies<0>();
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

#define FORWARD_GROUP(T, D)                                                                                  \
  MIXTAPE_KERNEL(attention_forward_group_##T##_##D, 2 * kGroupThreads, AttentionParams p, Global<const T> q, \
                 Global<const T> k, Global<const T> v, Global<const float> sinks,                            \
                 Global<const std::int32_t> lengths, Global<T> y, Global<float> lse,                         \
                 Global<std::uint64_t> errors) {                                                             \
    await_earlier();                                                                                         \
    MIXTAPE_SHARED_DYNAMIC(T, memory);                                                                       \
    attention_forward_group<T, D>(p, q, k, v, sinks, lengths, y, lse, errors, memory);                       \
  }
FORWARD_GROUP(bf16, 64)
FORWARD_GROUP(bf16, 128)
FORWARD_GROUP(f16, 64)
FORWARD_GROUP(f16, 128)

}  // namespace mixtape
