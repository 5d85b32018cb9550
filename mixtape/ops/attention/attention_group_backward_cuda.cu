// sm_90a alone.
// Gradients on Hopper's matrix units, bf16 alone, as in attention_cuda.cu: up to 64 and 128 dimensions in multiples of 8.
#include "mixtape/backend/gpu/tile_ring.h"
#include "mixtape/ops/attention/attention_group_gpu.h"

namespace mixtape {

// Rows of two matrices that stay for a tile of a block, 128, and of two that meet them, kMet at a time.
template <int D>
struct BackwardRings {
  static constexpr int kMet = 64, kPlaces = 3, kTakers = kGroupsThreads / kLanes;
  static constexpr int kWords = TileRing<1>::kWords + TileRing<kPlaces>::kWords;
  Shared<bf16> first_kept, second_kept, all_met;
  TileRing<1> kept;
  TileRing<kPlaces> met;

  MIXTAPE_DEVICE BackwardRings(Shared<bf16> memory, Shared<std::uint64_t> arrivals)
      : first_kept(memory),
        second_kept(memory + kQueries * D),
        all_met(memory + 2 * kQueries * D),
        kept{arrivals},
        met{arrivals + TileRing<1>::kWords} {}
  MIXTAPE_DEVICE void init() const {
    kept.init(kBringers, kTakers);
    met.init(kBringers, kTakers);
  }
  MIXTAPE_DEVICE Shared<bf16> first_met() const { return all_met + met.place() * 2 * kMet * D; }
  MIXTAPE_DEVICE Shared<bf16> second_met() const { return first_met() + kMet * D; }
};

// body(tile, length, the keys that it sees) for this block's tiles of queries.
template <class Body>
MIXTAPE_DEVICE void for_query_tiles(const AttentionParams& p, Global<const std::int32_t> lengths,
                                    Global<std::uint64_t> errors, const Body& body) {
  const int count = static_cast<int>(p.batch * p.q_heads * ((p.q_len + kQueries - 1) / kQueries));
  MIXTAPE_ROLLED
  for (int i = block_x(); i < count; i += blocks_x()) {
    const TensorTile tile = tensor_tile(p.batch, p.q_heads, p.q_len, kQueries, true, i);
    const int length = attention_length(p, lengths, tile.batch, errors);
    body(tile, length, rows_see(p, length, tile.first, tile.first + kQueries).any);
  }
}

template <int D>
MIXTAPE_DEVICE void bring_for_dq(const AttentionParams& p, const TensorReads& in,
                                 Global<const std::int32_t> lengths, Global<std::uint64_t> errors,
                                 BackwardRings<D>& rings) {
  constexpr int kKeys = BackwardRings<D>::kMet;
  TileCarrier carrier;
  for_query_tiles(p, lengths, errors, [&](const TensorTile& tile, int, const AttentionRange& all) {
    if (all.begin >= all.end) return;
    carrier.await_place(rings.kept);
    copy_to_panels<D, kQueries, kGroupThreads>(query_rows(p, in.q, tile.batch, tile.head, tile.first),
                                               rings.first_kept);
    copy_to_panels<D, kQueries, kGroupThreads>(query_rows(p, in.dy, tile.batch, tile.head, tile.first),
                                               rings.second_kept);
    carrier.send(rings.kept);
    const std::int64_t at =
        row_at(tile.batch, p.k_len, p.kv_heads, tile.head / (p.q_heads / p.kv_heads), p.head_dim, 0);
    MIXTAPE_ROLLED
    for (int first = all.begin; first < all.end; first += kKeys) {
      carrier.await_place(rings.met);
      copy_to_panels<D, kKeys, kGroupThreads>(key_rows(p, in.k, at, first), rings.first_met());
      copy_to_panels<D, kKeys, kGroupThreads>(key_rows(p, in.v, at, first), rings.second_met());
      carrier.send(rings.met);
    }
  });
  carrier.finish();
}

// 128 queries of a head meet the keys that they see.
template <int D>
MIXTAPE_DEVICE void multiply_for_dq(const AttentionParams& p, const TensorReads& in,
                                    Global<const std::int32_t> lengths, Global<bf16> dq,
                                    Global<std::uint64_t> errors, BackwardRings<D>& rings) {
  constexpr int kKeys = BackwardRings<D>::kMet;
  const float unit = p.scale * kLog2E;
  for_query_tiles(p, lengths, errors, [&](const TensorTile& tile, int length, const AttentionRange& all) {
    const int first_row = tile.first + warp() * 16;
    float out[1][D / 8][4] = {};
    if (all.begin < all.end) {
      const RowValues of = row_values_of(p, in, tile, first_row);
      const AttentionRange seen =
          rows_see(p, length, tile.first + group_row(), tile.first + group_row() + 64).any;
      const AttentionRange by_all = rows_see(p, length, first_row, first_row + 16).all;
      rings.kept.take();
      MIXTAPE_ROLLED
      for (int first = all.begin; first < all.end; first += kKeys) {
        rings.met.take();
        if (first >= seen.end || first + kKeys <= seen.begin) {
          rings.met.give_back();
          continue;
        }
        float scores[1][kKeys / 8][4], dp[kKeys / 8][4];
        begin_products();
        begin_rows<D, kKeys>(rings.first_kept, rings.first_met(), scores[0]);
        begin_rows<D, kKeys>(rings.second_kept, rings.second_met(), dp);
        wait_products<1>(scores[0]);
        if (first < by_all.begin || first + kKeys > by_all.end)
          hide_scores<1, kKeys>(
              first_row, first, [&](int i) { return keys_seen(p, length, i, i + 1); }, scores);
        MIXTAPE_UNROLL
        for (int j = 0; j < kKeys / 8; ++j) {
          MIXTAPE_UNROLL
          for (int e = 0; e < 4; ++e)
            scores[0][j][e] = exp2_fast(fma_f32(scores[0][j][e], unit, -of.base[e / 2]));
        }
        wait_products<0>(dp);
        std::uint32_t weights[kKeys / 8][2];
        MIXTAPE_UNROLL
        for (int j = 0; j < kKeys / 8; ++j) {
          MIXTAPE_UNROLL
          for (int half = 0; half < 2; ++half) {
            weights[j][half] =
                pack_pair<bf16>(scores[0][j][half * 2] * (dp[j][half * 2] - of.delta[half]),
                                scores[0][j][half * 2 + 1] * (dp[j][half * 2 + 1] - of.delta[half]));
          }
        }
        begin_products();
        begin_weights<D, kKeys>(weights, rings.first_met(), out[0]);
        wait_products<0>(out[0]);
        rings.met.give_back();
      }
      rings.kept.give_back();
    }
    const float factors[1][2] = {{p.scale, p.scale}};
    store_rows<D, 1>(out, factors, dq + row_at(tile.batch, p.q_len, p.q_heads, tile.head, p.head_dim, 0),
                     p.q_heads * p.head_dim, first_row, static_cast<int>(p.q_len),
                     static_cast<int>(p.head_dim), (p.accumulate & p.dq) != 0);
  });
}

// A block has one tile of keys: it meets so many queries that another one would gain nothing.
struct KeyTile {
  TensorTile tile;
  int length;
  AttentionRange all;  // the queries that see a key of it

  MIXTAPE_DEVICE KeyTile(const AttentionParams& p, Global<const std::int32_t> lengths,
                         Global<std::uint64_t> errors)
      : tile(tensor_tile(p.batch, p.kv_heads, p.k_len, kQueries, false)),
        length(attention_length(p, lengths, tile.batch, errors)),
        all(queries_that_see(p, length, tile.first, tile.first + kQueries)) {}
};

// Beside queries and their gradients the values of their rows: a thread brings one.
template <int D>
MIXTAPE_DEVICE void bring_for_dkv(const AttentionParams& p, const TensorReads& in,
                                  Global<const std::int32_t> lengths, Global<std::uint64_t> errors,
                                  BackwardRings<D>& rings, Shared<float> row_values) {
  constexpr int kMet = BackwardRings<D>::kMet;
  const int group = static_cast<int>(p.q_heads / p.kv_heads);
  const KeyTile keys(p, lengths, errors);
  const TensorTile& tile = keys.tile;
  if (keys.all.begin >= keys.all.end) return;
  TileCarrier carrier;
  const std::int64_t at = row_at(tile.batch, p.k_len, p.kv_heads, tile.head, p.head_dim, 0);
  copy_to_panels<D, kQueries, kGroupThreads>(key_rows(p, in.k, at, tile.first), rings.first_kept);
  copy_to_panels<D, kQueries, kGroupThreads>(key_rows(p, in.v, at, tile.first), rings.second_kept);
  carrier.send(rings.kept);
  int head = static_cast<int>(tile.head) * group, first = keys.all.begin;
  const int batch = static_cast<int>(tile.batch), end_head = head + group;
  const QueryTiles<kMet> tiles{p, in, batch, end_head, keys.all};
  MIXTAPE_ROLLED
  for (; head < end_head; tiles.advance(head, first)) {
    carrier.await_place(rings.met);
    tiles.keep_row_value(row_values, rings.met.place(), tiles.row_value(head, first));
    copy_to_panels<D, kMet, kGroupThreads>(query_rows(p, in.q, batch, head, first), rings.first_met());
    copy_to_panels<D, kMet, kGroupThreads>(query_rows(p, in.dy, batch, head, first), rings.second_met());
    carrier.send(rings.met);
  }
  carrier.finish();
}

// 128 keys meet the query heads of the group and the queries that see them. Scores lie with keys as rows, so that the
// weights are left operands as they come.
template <int D>
MIXTAPE_DEVICE void multiply_for_dkv(const AttentionParams& p, const TensorReads& in,
                                     Global<const std::int32_t> lengths, Global<bf16> dk, Global<bf16> dv,
                                     Global<std::uint64_t> errors, BackwardRings<D>& rings,
                                     Shared<float> row_values) {
  constexpr int kMet = BackwardRings<D>::kMet;
  const int group = static_cast<int>(p.q_heads / p.kv_heads);
  const float unit = p.scale * kLog2E;
  const KeyTile keys(p, lengths, errors);
  const TensorTile& tile = keys.tile;
  const AttentionRange& all = keys.all;
  const int length = keys.length;
    const int first_row = tile.first + warp() * 16;
    float out_k[1][D / 8][4] = {}, out_v[1][D / 8][4] = {};
    if (all.begin < all.end) {
      const AttentionRange any =
          queries_that_see(p, length, tile.first + group_row(), tile.first + group_row() + 64);
      const AttentionRange last = queries_that_see(p, length, first_row + 15, first_row + 16);
      const AttentionRange lowest = queries_that_see(p, length, first_row, first_row + 1);
      int head = static_cast<int>(tile.head) * group, first = all.begin;
      const int end_head = head + group;
      const QueryTiles<kMet> tiles{p, in, static_cast<int>(tile.batch), end_head, all};
      rings.kept.take();
      MIXTAPE_ROLLED
      for (; head < end_head; tiles.advance(head, first)) {
        rings.met.take();
        if (first >= any.end || first + kMet <= any.begin) {
          rings.met.give_back();
          continue;
        }
        const Shared<float> bases = row_values + rings.met.place() * 2 * kMet, deltas = bases + kMet;
        float scores[1][kMet / 8][4], dp[kMet / 8][4];
        begin_products();
        begin_rows<D, kMet>(rings.first_kept, rings.first_met(), scores[0]);
        begin_rows<D, kMet>(rings.second_kept, rings.second_met(), dp);
        wait_products<1>(scores[0]);
        if (first < last.begin || first + kMet > last.end || first + kMet > lowest.end)
          hide_scores<1, kMet>(
              first_row, first, [&](int i) { return queries_that_see(p, length, i, i + 1); }, scores);
        std::uint32_t weights[kMet / 8][2], slopes[kMet / 8][2];
        MIXTAPE_UNROLL
        for (int j = 0; j < kMet / 8; ++j) {
          const Pack<float, 2> base = load_pack<2>(bases + (j * 8 + lane() % 4 * 2));
          MIXTAPE_UNROLL
          for (int e = 0; e < 4; ++e) {
            float& s = scores[0][j][e];
            s = exp2_fast(fma_f32(s, unit, -base.v[e % 2]));
          }
        }
        pack_weights<bf16, kMet>(scores[0], weights);
        begin_products();
        begin_weights<D, kMet>(weights, rings.second_met(), out_v[0]);
        wait_products<1>(dp);
        MIXTAPE_UNROLL
        for (int j = 0; j < kMet / 8; ++j) {
          const Pack<float, 2> delta = load_pack<2>(deltas + (j * 8 + lane() % 4 * 2));
          MIXTAPE_UNROLL
          for (int half = 0; half < 2; ++half) {
            // As rounded as they meet dy: for want of registers.
            const float left = float_of(weights[j][half] << 16), right = float_of(weights[j][half] & 0xffff0000u);
            slopes[j][half] = pack_pair<bf16>(left * (dp[j][half * 2] - delta.v[0]),
                                              right * (dp[j][half * 2 + 1] - delta.v[1]));
          }
        }
        begin_products();
        begin_weights<D, kMet>(slopes, rings.first_met(), out_k[0]);
        wait_products<0>(out_k[0], out_v[0]);
        rings.met.give_back();
      }
      rings.kept.give_back();
    }
    const std::int64_t step = p.kv_heads * p.head_dim,
                       at = row_at(tile.batch, p.k_len, p.kv_heads, tile.head, p.head_dim, 0);
    const int count = static_cast<int>(p.k_len), dim = static_cast<int>(p.head_dim);
    const float scaled[1][2] = {{p.scale, p.scale}}, plain[1][2] = {{1.0f, 1.0f}};
    if ((p.wanted & p.dk) != 0)
      store_rows<D, 1>(out_k, scaled, dk + at, step, first_row, count, dim, (p.accumulate & p.dk) != 0);
    if ((p.wanted & p.dv) != 0)
      store_rows<D, 1>(out_v, plain, dv + at, step, first_row, count, dim, (p.accumulate & p.dv) != 0);
}

// Two groups multiply, 64 rows each, and a third one brings.
#define WITH_RINGS(D, BRING, MULTIPLY)                          \
  MIXTAPE_SHARED_DYNAMIC(bf16, memory);                         \
  MIXTAPE_SHARED(std::uint64_t, arrivals, BackwardRings<D>::kWords); \
  BackwardRings<D> rings(memory, arrivals);                     \
  if (flat_thread() == 0) rings.init();                         \
  barrier();                                                    \
  if (lane_shuffle(warp(), 0) >= BackwardRings<D>::kTakers) {   \
    give_registers<40>();                                       \
    BRING;                                                      \
  } else {                                                      \
    take_registers<232>();                                      \
    MULTIPLY;                                                   \
  }
#define DQ_GROUP(D)                                                                                          \
  MIXTAPE_KERNEL_BLOCKS(attention_dq_group_##D, 3 * kGroupThreads, 1, AttentionParams p, Global<const bf16> q, \
                        Global<const bf16> k, Global<const bf16> v, Global<const bf16> dy,                   \
                        Global<const float> lse, Global<const float> delta,                                  \
                        Global<const std::int32_t> lengths, Global<bf16> dq, Global<std::uint64_t> errors) { \
    const TensorReads in{q, k, v, dy, lse, delta};                                                           \
    WITH_RINGS(D, bring_for_dq<D>(p, in, lengths, errors, rings),                                            \
               multiply_for_dq<D>(p, in, lengths, dq, errors, rings))                                        \
  }
DQ_GROUP(64)
DQ_GROUP(128)

#define DKV_GROUP(D)                                                                                         \
  MIXTAPE_KERNEL_BLOCKS(attention_dkv_group_##D, 3 * kGroupThreads, 1, AttentionParams p,                    \
                        Global<const bf16> q, Global<const bf16> k, Global<const bf16> v,                    \
                        Global<const bf16> dy, Global<const float> lse, Global<const float> delta,           \
                        Global<const std::int32_t> lengths, Global<bf16> dk, Global<bf16> dv,                \
                        Global<std::uint64_t> errors) {                                                      \
    constexpr int kValues = 2 * BackwardRings<D>::kMet * BackwardRings<D>::kPlaces;                          \
    MIXTAPE_SHARED(float, row_values, kValues);                                                              \
    const TensorReads in{q, k, v, dy, lse, delta};                                                           \
    WITH_RINGS(D, bring_for_dkv<D>(p, in, lengths, errors, rings, row_values),                               \
               multiply_for_dkv<D>(p, in, lengths, dk, dv, errors, rings, row_values))                       \
  }
DKV_GROUP(64)
DKV_GROUP(128)

}  // namespace mixtape
