// sm_90a alone.
// 16 bits on Hopper's matrix units, whose products run beside what the threads do: up to 64 and 128 dimensions in
// multiples of 8. As in attention_cuda.cu weights are rounded to the inputs' type.
#include "mixtape/backend/gpu/tile_ring.h"
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

// Rings of tiles in shared memory: queries, and keys and values of kKeys rows.
template <class T, int D>
struct ForwardRings {
  static constexpr int kKeys = 128, kTakers = kGroupsThreads / kLanes;
  static constexpr int kWords = TileRing<1>::kWords + 2 * TileRing<2>::kWords;
  Shared<T> queries, all_keys, all_values;
  TileRing<1> of_queries;
  TileRing<2> of_keys, of_values;

  MIXTAPE_DEVICE ForwardRings(Shared<T> memory, Shared<std::uint64_t> arrivals)
      : queries(memory),
        all_keys(memory + kQueries * D),
        all_values(memory + (kQueries + 2 * kKeys) * D),
        of_queries{arrivals},
        of_keys{arrivals + TileRing<1>::kWords},
        of_values{arrivals + TileRing<1>::kWords + TileRing<2>::kWords} {}
  MIXTAPE_DEVICE void init() const {
    of_queries.init(kBringers, kTakers);
    of_keys.init(kBringers, kTakers);
    of_values.init(kBringers, kTakers);
  }
  MIXTAPE_DEVICE Shared<T> keys() const { return all_keys + of_keys.place() * kKeys * D; }
  MIXTAPE_DEVICE Shared<T> values() const { return all_values + of_values.place() * kKeys * D; }
};

// body(tile, length, its keys) for this block's tiles of queries that see a key, and for the others where they are asked
// for.
template <bool Empty, class Body>
MIXTAPE_DEVICE void for_tiles(const AttentionParams& p, Global<const std::int32_t> lengths,
                              Global<std::uint64_t> errors, const Body& body) {
  const int count = static_cast<int>(p.batch * p.q_heads * ((p.q_len + kQueries - 1) / kQueries));
  MIXTAPE_ROLLED
  for (int i = block_x(); i < count; i += blocks_x()) {
    const TensorTile tile = tensor_tile(p.batch, p.q_heads, p.q_len, kQueries, true, i);
    const int length = attention_length(p, lengths, tile.batch, errors);
    const AttentionRange all = rows_see(p, length, tile.first, tile.first + kQueries).any;
    if (Empty || all.begin < all.end) body(tile, length, all);
  }
}

// Keys of a tile come before the values of the one before it: so they are needed.
template <class T, int D>
MIXTAPE_DEVICE void bring_forward(const AttentionParams& p, Global<const T> q, Global<const T> k,
                                  Global<const T> v, Global<const std::int32_t> lengths,
                                  Global<std::uint64_t> errors, ForwardRings<T, D>& rings) {
  constexpr int kKeys = ForwardRings<T, D>::kKeys;
  TileCarrier carrier;
  for_tiles<false>(p, lengths, errors, [&](const TensorTile& tile, int, const AttentionRange& all) {
    const std::int64_t at =
        row_at(tile.batch, p.k_rows, p.kv_heads, tile.head / (p.q_heads / p.kv_heads), p.head_dim, 0);
    carrier.await_place(rings.of_queries);
    copy_to_panels<D, kQueries, kGroupThreads>(query_rows(p, q, tile.batch, tile.head, tile.first),
                                               rings.queries);
    carrier.send(rings.of_queries);
    const int tiles = tiles_of(all, kKeys);
    MIXTAPE_ROLLED
    for (int i = 0; i <= tiles; ++i) {
      if (i < tiles) {
        carrier.await_place(rings.of_keys);
        copy_to_panels<D, kKeys, kGroupThreads>(key_rows(p, k, at, all.begin + i * kKeys), rings.keys());
        carrier.send(rings.of_keys);
      }
      if (i > 0) {
        carrier.await_place(rings.of_values);
        copy_to_panels<D, kKeys, kGroupThreads>(key_rows(p, v, at, all.begin + (i - 1) * kKeys),
                                                rings.values());
        carrier.send(rings.of_values);
      }
    }
  });
  carrier.finish();
}

// While the scores of a tile are made into weights, the weights of the tile before it meet their values. The weights are
// packed once no product reads those of before: ptxas runs products one by one where registers that they read are written
// beside them.
template <class T, int D>
MIXTAPE_DEVICE void multiply_forward(const AttentionParams& p, Global<const float> sinks,
                                     Global<const std::int32_t> lengths, Global<T> y, Global<float> lse,
                                     Global<std::uint64_t> errors, ForwardRings<T, D>& rings) {
  constexpr int kKeys = ForwardRings<T, D>::kKeys;
  const float unit = p.scale * kLog2E;
  for_tiles<true>(p, lengths, errors, [&](const TensorTile& tile, int length, const AttentionRange& all) {
    // A sink is there from the start; scores are kept before they are scaled.
    const float start = p.has_sinks != 0 ? sinks[tile.head] / p.scale : kMinusInfinity;
    const float first_sum = p.has_sinks != 0 && lane() % 4 == 0 ? 1.0f : 0.0f;
    float out[1][D / 8][4] = {}, max[2] = {start, start}, sum[2] = {first_sum, first_sum};
    const int first_row = tile.first + warp() * 16, tiles = tiles_of(all, kKeys);
    const auto hide = [&](int i, float(&scores)[1][kKeys / 8][4]) {
      const int first = all.begin + i * kKeys;
      const AttentionRange by_all = rows_see(p, length, first_row, first_row + 16).all;
      if (first < by_all.begin || first + kKeys > by_all.end)
        hide_scores<1, kKeys>(
            first_row, first, [&](int row) { return keys_seen(p, length, row, row + 1); }, scores);
    };
    if (tiles > 0) {
      float scores[1][kKeys / 8][4] = {}, factor[2];
      std::uint32_t weights[kKeys / 8][2];
      rings.of_queries.take();
      rings.of_keys.take();
      begin_products();
      begin_rows<D, kKeys>(rings.queries, rings.keys(), scores[0]);
      wait_products<0>(scores[0]);
      rings.of_keys.give_back();
      hide(0, scores);
      weigh<kKeys>(unit, scores[0], max, sum, factor);
      pack_weights<T, kKeys>(scores[0], weights);
      MIXTAPE_ROLLED
      for (int i = 1; i < tiles; ++i) {
        rings.of_keys.take();
        rings.of_values.take();
        begin_products();
        begin_rows<D, kKeys>(rings.queries, rings.keys(), scores[0]);
        begin_weights<D, kKeys>(weights, rings.values(), out[0]);
        wait_products<1>(scores[0]);
        rings.of_keys.give_back();
        hide(i, scores);
        weigh<kKeys>(unit, scores[0], max, sum, factor);
        wait_products<0>(out[0]);
        rings.of_values.give_back();
        pack_weights<T, kKeys>(scores[0], weights);
        MIXTAPE_UNROLL
        for (int j = 0; j < D / 8; ++j) {
          MIXTAPE_UNROLL
          for (int e = 0; e < 4; ++e) out[0][j][e] *= factor[e / 2];
        }
      }
      rings.of_queries.give_back();
      rings.of_values.take();
      begin_products();
      begin_weights<D, kKeys>(weights, rings.values(), out[0]);
      wait_products<0>(out[0]);
      rings.of_values.give_back();
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
                     p.q_heads * p.head_dim, first_row, static_cast<int>(p.q_len),
                     static_cast<int>(p.head_dim), false);
  });
}

// Two groups multiply, 64 queries each, and a third one brings.
#define FORWARD_GROUP(T, D)                                                                                  \
  MIXTAPE_KERNEL_BLOCKS(attention_forward_group_##T##_##D, 3 * kGroupThreads, 1, AttentionParams p,          \
                        Global<const T> q, Global<const T> k, Global<const T> v, Global<const float> sinks,  \
                        Global<const std::int32_t> lengths, Global<T> y, Global<float> lse,                  \
                        Global<std::uint64_t> errors) {                                                      \
    MIXTAPE_SHARED_DYNAMIC(T, memory);                                                                       \
    MIXTAPE_SHARED(std::uint64_t, arrivals, (ForwardRings<T, D>::kWords));                                   \
    ForwardRings<T, D> rings(memory, arrivals);                                                              \
    if (flat_thread() == 0) rings.init();                                                                    \
    barrier();                                                                                               \
    if (lane_shuffle(warp(), 0) >= ForwardRings<T, D>::kTakers) {                                            \
      give_registers<40>();                                                                                  \
      bring_forward<T, D>(p, q, k, v, lengths, errors, rings);                                               \
    } else {                                                                                                 \
      take_registers<232>();                                                                                 \
      multiply_forward<T, D>(p, sinks, lengths, y, lse, errors, rings);                                      \
    }                                                                                                        \
  }
FORWARD_GROUP(bf16, 64)
FORWARD_GROUP(bf16, 128)
FORWARD_GROUP(f16, 64)
FORWARD_GROUP(f16, 128)

}  // namespace mixtape
