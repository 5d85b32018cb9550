// Tiles of 64 queries against tiles of 64 keys, in f32, for any head_dim: chunks of 64 dimensions at a time.
// 256 threads; thread (x, y) of 16 x 16 holds rows 4y..4y+3 and columns 4x..4x+3 of each product.
#include "mixtape/backend/gpu/lanes.h"
#include "mixtape/ops/attention/attention_params.h"
#include "mixtape/ops/attention/attention_range_gpu.h"

namespace mixtape {

constexpr int kTile = 64;
constexpr int kPitch = kTile + 4;
using Sums = float[4][4];

MIXTAPE_DEVICE int held_row(int i) { return flat_thread() / 16 * 4 + i; }
MIXTAPE_DEVICE int held_col(int j) { return flat_thread() % 16 * 4 + j; }

// Rows of one head: element (row, d) at p[row * step + d].
template <class T>
struct HeadRows {
  Global<T> p;
  int step, count, dim;
};

// A pointer to q-like or k-like memory: rows from `first` on, at most a tile, of a head of a sequence; `rows` from one
// sequence to the next.
template <class T>
MIXTAPE_DEVICE HeadRows<T> head_rows(Global<T> p, std::int64_t batch, std::int64_t rows, std::int64_t length,
                                     std::int64_t heads, std::int64_t head, std::int64_t dim, int first) {
  const std::int64_t left = length - first;
  return {p + (((batch * rows + first) * heads + head) * dim), static_cast<int>(heads * dim),
          static_cast<int>(left < kTile ? left : kTile), static_cast<int>(dim)};
}

// factor * rows, dimensions from `first` on, as tile[row][d] or, transposed, tile[d][row]; 0
// up to the next multiple of 4 rows and of 4 dimensions.
template <bool Transposed, class T>
MIXTAPE_DEVICE void load_rows(const HeadRows<const T>& in, int first, float factor, Shared<float> tile) {
  const bool are_packs = in.dim % 4 == 0 && is_aligned(in.p, 4 * sizeof(T));
  MIXTAPE_ROLLED
  for (int i = 0; i < 4; ++i) {
    const int flat = i * 256 + flat_thread();
    const int row = Transposed ? flat % kTile : flat / 16;
    const int d = (Transposed ? flat / kTile : flat % 16) * 4;
    if (first + d >= in.dim || row >= in.count + 3) continue;
    const Global<const T> at = in.p + (static_cast<std::int64_t>(row) * in.step + first + d);
    Pack<float, 4> v = {};
    if (row < in.count && first + d + 4 <= in.dim && are_packs) {
      const auto pack = load_pack<4>(at);
      MIXTAPE_UNROLL
      for (int e = 0; e < 4; ++e) v.v[e] = factor * to_f32(pack.v[e]);
    } else if (row < in.count) {
      MIXTAPE_UNROLL
      for (int e = 0; e < 4; ++e) {
        if (first + d + e < in.dim) v.v[e] = factor * to_f32(at[e]);
      }
    }
    if constexpr (Transposed) {
      MIXTAPE_UNROLL
      for (int e = 0; e < 4; ++e) tile[(d + e) * kPitch + row] = v.v[e];
    } else {
      store_pack(tile + (row * kPitch + d), v);
    }
  }
}

// sums[i][j] += sum over d < depth of a[d][row i] b[d][column j]
MIXTAPE_DEVICE void add_products(Shared<float> a, Shared<float> b, int depth, Sums& sums) {
  for (int d = 0; d < depth; ++d) {
    const auto va = load_pack<4>(a + (d * kPitch + held_row(0)));
    const auto vb = load_pack<4>(b + (d * kPitch + held_col(0)));
    MIXTAPE_UNROLL
    for (int i = 0; i < 4; ++i) {
      MIXTAPE_UNROLL
      for (int j = 0; j < 4; ++j) sums[i][j] = fma_f32(va.v[i], vb.v[j], sums[i][j]);
    }
  }
}

// sums[i][j] = factor * a_i . b_j over all dimensions, for rows a and b.
template <class T>
MIXTAPE_DEVICE void dot_rows(const HeadRows<const T>& a, const HeadRows<const T>& b, float factor,
                             Shared<float> tile_a, Shared<float> tile_b, Sums& sums) {
  for (int first = 0; first < a.dim; first += kTile) {
    barrier();
    load_rows<true>(a, first, factor, tile_a);
    load_rows<true>(b, first, 1.0f, tile_b);
    barrier();
    if (held_row(0) < a.count && held_col(0) < b.count)
      add_products(tile_a, tile_b, a.dim - first < kTile ? a.dim - first : kTile, sums);
  }
}

// out[chunk] += weights^T rows, `count` rows of it; the weights are in tile_a as [row][row of the result].
template <int Chunks, class T>
MIXTAPE_DEVICE void add_weighted(int count, const HeadRows<const T>& rows, float factor, Shared<float> tile_a,
                                 Shared<float> tile_b, Sums (&out)[Chunks]) {
  MIXTAPE_UNROLL
  for (int c = 0; c < Chunks; ++c) {
    if (c * kTile >= rows.dim) break;
    if (c > 0) barrier();
    load_rows<false>(rows, c * kTile, factor, tile_b);
    barrier();
    if (held_row(0) < count && c * kTile + held_col(0) < rows.dim)
      add_products(tile_a, tile_b, rows.count, out[c]);
  }
}

// Keeps weights[i][j] as tile[row i][column j] or, transposed, as tile[column j][row i].
template <bool Transposed>
MIXTAPE_DEVICE void keep_weights(const Sums& weights, Shared<float> tile) {
  MIXTAPE_UNROLL
  for (int i = 0; i < 4; ++i) {
    Pack<float, 4> pack;
    MIXTAPE_UNROLL
    for (int j = 0; j < 4; ++j) pack.v[j] = Transposed ? weights[j][i] : weights[i][j];
    store_pack(tile + (Transposed ? held_col(i) * kPitch + held_row(0) : held_row(i) * kPitch + held_col(0)),
               pack);
  }
}

template <int Chunks, class T>
MIXTAPE_DEVICE void store_rows(const Sums (&sums)[Chunks], const float (&factors)[4], const HeadRows<T>& out,
                               bool accumulate) {
  MIXTAPE_UNROLL
  for (int c = 0; c < Chunks; ++c) {
    MIXTAPE_UNROLL
    for (int i = 0; i < 4; ++i) {
      MIXTAPE_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int d = c * kTile + held_col(j);
        if (held_row(i) >= out.count || d >= out.dim) continue;
        const std::int64_t at = static_cast<std::int64_t>(held_row(i)) * out.step + d;
        const float v = sums[c][i][j] * factors[i];
        out.p[at] = from_f32<T>(accumulate ? to_f32(out.p[at]) + v : v);
      }
    }
  }
}

// Sum and maximum over the 16 threads of a row.
MIXTAPE_DEVICE float sum_of_16(float v) {
  for (int mask = 8; mask > 0; mask /= 2) v += lane_xor(v, mask);
  return v;
}
MIXTAPE_DEVICE float max_of_16(float v) {
  for (int mask = 8; mask > 0; mask /= 2) v = max_nan(v, lane_xor(v, mask));
  return v;
}

// A block's tile: the last queries, which see the most keys, come first.
struct TileOfHead {
  int batch, head, first;
};
MIXTAPE_DEVICE TileOfHead tile_of_head(std::int64_t length, std::int64_t heads, bool is_last_first) {
  const std::int64_t tiles = (length + kTile - 1) / kTile, pair = block_x() / tiles;
  const std::int64_t tile = block_x() % tiles;
  return {static_cast<int>(pair / heads), static_cast<int>(pair % heads),
          static_cast<int>((is_last_first ? tiles - 1 - tile : tile) * kTile)};
}

// A running maximum and sum per query; earlier sums shrink as the maximum rises. A sink is there from the start.
template <class T, int Chunks>
MIXTAPE_DEVICE void attention_forward(const AttentionParams& p, Global<const T> q, Global<const T> k,
                                      Global<const T> v, Global<const float> sinks,
                                      Global<const std::int32_t> lengths, Global<T> y, Global<float> lse,
                                      Global<std::uint64_t> errors, Shared<float> tile_a,
                                      Shared<float> tile_b) {
  const TileOfHead tile = tile_of_head(p.q_len, p.q_heads, true);
  const int kv_head = tile.head / static_cast<int>(p.q_heads / p.kv_heads);
  const HeadRows<const T> queries =
      head_rows(q, tile.batch, p.q_len, p.q_len, p.q_heads, tile.head, p.head_dim, tile.first);
  const int length = attention_length(p, lengths, tile.batch, errors);
  const AttentionRange all = keys_seen(p, length, tile.first, tile.first + queries.count);
  const float start = p.has_sinks != 0 ? static_cast<float>(sinks[tile.head]) : float_of(0xff800000u);
  const float first_sum = p.has_sinks != 0 && held_col(0) == 0 ? 1.0f : 0.0f;
  float max[4] = {start, start, start, start}, sum[4] = {first_sum, first_sum, first_sum, first_sum};
  Sums out[Chunks] = {};
  for (int first = all.begin; first < all.end; first += kTile) {
    Sums s = {};
    dot_rows(queries, head_rows(k, tile.batch, p.k_rows, p.k_len, p.kv_heads, kv_head, p.head_dim, first),
             p.scale, tile_a, tile_b, s);
    MIXTAPE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const AttentionRange seen =
          keys_seen(p, length, tile.first + held_row(i), tile.first + held_row(i) + 1);
      const auto sees = [&](int j) {
        return first + held_col(j) >= seen.begin && first + held_col(j) < seen.end;
      };
      float highest = max[i];
      MIXTAPE_UNROLL
      for (int j = 0; j < 4; ++j) highest = sees(j) ? max_nan(highest, s[i][j]) : highest;
      highest = max_of_16(highest);
      const float factor = max[i] == highest ? 1.0f : exp_f32(max[i] - highest);
      max[i] = highest;
      sum[i] *= factor;
      MIXTAPE_UNROLL
      for (int j = 0; j < 4; ++j) {
        s[i][j] = sees(j) ? exp_f32(s[i][j] - highest) : 0.0f;
        sum[i] += s[i][j];
        MIXTAPE_UNROLL
        for (int c = 0; c < Chunks; ++c) out[c][i][j] *= factor;
      }
    }
    barrier();
    keep_weights<true>(s, tile_a);
    add_weighted<Chunks>(queries.count,
                         head_rows(v, tile.batch, p.k_rows, p.k_len, p.kv_heads, kv_head, p.head_dim, first),
                         1.0f, tile_a, tile_b, out);
  }
  float factors[4];
  MIXTAPE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int row = tile.first + held_row(i);
    const AttentionRange seen = keys_seen(p, length, row, row + 1);
    sum[i] = sum_of_16(sum[i]);
    factors[i] = seen.begin < seen.end ? 1.0f / sum[i] : 0.0f;
    if (held_row(i) < queries.count && held_col(0) == 0) {
      lse[(tile.batch * p.q_heads + tile.head) * p.q_len + row] =
          seen.begin < seen.end ? max[i] + log_f32(sum[i]) : max[i];
    }
  }
  store_rows<Chunks>(out, factors,
                     head_rows(y, tile.batch, p.q_len, p.q_len, p.q_heads, tile.head, p.head_dim, tile.first),
                     false);
}

#define FORWARD_CHUNKS(T, CHUNKS)                                                                       \
  MIXTAPE_KERNEL_BLOCKS(attention_forward_##T##_##CHUNKS, 256, 1, AttentionParams p, Global<const T> q, \
                        Global<const T> k, Global<const T> v, Global<const float> sinks,                \
                        Global<const std::int32_t> lengths, Global<T> y, Global<float> lse,             \
                        Global<std::uint64_t> errors) {                                                 \
    await_earlier();                                                                                    \
    MIXTAPE_SHARED(float, tile_a, kTile* kPitch);                                                       \
    MIXTAPE_SHARED(float, tile_b, kTile* kPitch);                                                       \
    attention_forward<T, CHUNKS>(p, q, k, v, sinks, lengths, y, lse, errors, tile_a, tile_b);           \
  }
#define FORWARD(T)     \
  FORWARD_CHUNKS(T, 1) \
  FORWARD_CHUNKS(T, 2) \
  FORWARD_CHUNKS(T, 4)
MIXTAPE_VALUE_KERNELS(FORWARD)

// delta = dy . y for each query and head, threads_x threads each, N values at a time; [B,Hq,Sq] as lse.
template <class T, int N>
MIXTAPE_DEVICE void attention_delta(const AttentionParams& p, Global<const T> y, Global<const T> dy,
                                    Global<float> delta) {
  const std::int64_t row = row_index();
  const bool is_there = row < p.batch * p.q_len * p.q_heads;
  float sum = 0.0f;
  for (std::int64_t d = thread_x() * N; is_there && d < p.head_dim; d += threads_x() * N) {
    const Pack<T, N> a = load_pack<N>(dy + (row * p.head_dim + d));
    const Pack<T, N> b = load_pack<N>(y + (row * p.head_dim + d));
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) sum = fma_f32(to_f32(a.v[i]), to_f32(b.v[i]), sum);
  }
  sum = row_lanes_sum(sum);
  if (!is_there || thread_x() != 0) return;
  const std::int64_t token = divide(row, p.q_heads), head = row - token * p.q_heads;
  const std::int64_t batch = divide(token, p.q_len), position = token - batch * p.q_len;
  delta[(batch * p.q_heads + head) * p.q_len + position] = sum;
}
#define DELTA_OF(T, N, name)                                                                               \
  MIXTAPE_KERNEL(attention_delta_##T##name, 256, AttentionParams p, Global<const T> y, Global<const T> dy, \
                 Global<float> delta) {                                                                    \
    await_earlier();                                                                                       \
    attention_delta<T, N>(p, y, dy, delta);                                                                \
  }
#define DELTA(T)                      \
  DELTA_OF(T, 16 / sizeof(T), _packs) \
  DELTA_OF(T, 1, _any)
MIXTAPE_VALUE_KERNELS(DELTA)

// A block per head: -sum over the batch and the queries of exp(sink - lse) * delta.
MIXTAPE_KERNEL(attention_dsinks, 256, AttentionParams p, Global<const float> sinks, Global<const float> lse,
               Global<const float> delta, Global<float> dsinks) {
  await_earlier();
  MIXTAPE_SHARED(float, scratch, 32);
  const std::int64_t head = block_x(), count = p.batch * p.q_len;
  const float sink = sinks[head];
  float sum = 0.0f;
  for (std::int64_t i = flat_thread(); i < count; i += block_threads()) {
    const std::int64_t at = (i / p.q_len * p.q_heads + head) * p.q_len + i % p.q_len;
    const float row = lse[at];  // -inf: a sink of -inf that no key is beside
    if (row != float_of(0xff800000u)) sum = fma_f32(-exp_f32(sink - row), delta[at], sum);
  }
  sum = block_sum(sum, scratch);
  if (flat_thread() != 0) return;
  dsinks[head] = (p.accumulate & p.dsinks) != 0 ? dsinks[head] + sum : sum;
}

// What the backward kernels read.
template <class T>
struct AttentionReads {
  Global<const T> q, k, v, dy;
  Global<const float> lse, delta;
};

// The weights p of a tile and, if wanted, ds = p * (dy . v - delta).
template <bool WantsScores, class T>
MIXTAPE_DEVICE void tile_weights(const AttentionParams& p, const AttentionReads<T>& in, int batch, int head,
                                 int length, int first_query, int first_key, Shared<float> tile_a,
                                 Shared<float> tile_b, Sums& weights) {
  const int kv_head = head / static_cast<int>(p.q_heads / p.kv_heads);
  const auto query_rows = [&](Global<const T> from) {
    return head_rows(from, batch, p.q_len, p.q_len, p.q_heads, head, p.head_dim, first_query);
  };
  const auto key_rows = [&](Global<const T> from) {
    return head_rows(from, batch, p.k_rows, p.k_len, p.kv_heads, kv_head, p.head_dim, first_key);
  };
  dot_rows(query_rows(in.q), key_rows(in.k), p.scale, tile_a, tile_b, weights);
  Sums dp = {};
  if constexpr (WantsScores) dot_rows(query_rows(in.dy), key_rows(in.v), 1.0f, tile_a, tile_b, dp);
  MIXTAPE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int row = first_query + held_row(i);
    const bool is_row = row < p.q_len;
    const AttentionRange seen = keys_seen(p, length, row, row + 1);
    const std::int64_t at = (batch * p.q_heads + head) * p.q_len + row;
    const float lse = is_row ? static_cast<float>(in.lse[at]) : 0.0f;
    const float delta = WantsScores && is_row ? static_cast<float>(in.delta[at]) : 0.0f;
    MIXTAPE_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int key = first_key + held_col(j);
      const bool sees = is_row && key >= seen.begin && key < seen.end;
      const float weight = sees ? exp_f32(weights[i][j] - lse) : 0.0f;
      weights[i][j] = WantsScores && sees ? weight * (dp[i][j] - delta) : weight;
    }
  }
}

// A block per tile of queries, over the keys that they see.
template <class T, int Chunks>
MIXTAPE_DEVICE void attention_dq(const AttentionParams& p, const AttentionReads<T>& in,
                                 Global<const std::int32_t> lengths, Global<T> dq,
                                 Global<std::uint64_t> errors, Shared<float> tile_a, Shared<float> tile_b) {
  const TileOfHead tile = tile_of_head(p.q_len, p.q_heads, true);
  const int kv_head = tile.head / static_cast<int>(p.q_heads / p.kv_heads);
  const int length = attention_length(p, lengths, tile.batch, errors);
  const AttentionRange all = keys_seen(p, length, tile.first, tile.first + kTile);
  Sums out[Chunks] = {};
  for (int first = all.begin; first < all.end; first += kTile) {
    Sums scores = {};
    tile_weights<true>(p, in, tile.batch, tile.head, length, tile.first, first, tile_a, tile_b, scores);
    barrier();
    keep_weights<true>(scores, tile_a);
    add_weighted<Chunks>(
        static_cast<int>(p.q_len) - tile.first,
        head_rows(in.k, tile.batch, p.k_rows, p.k_len, p.kv_heads, kv_head, p.head_dim, first), p.scale,
        tile_a, tile_b, out);
  }
  store_rows<Chunks>(
      out, {1.0f, 1.0f, 1.0f, 1.0f},
      head_rows(dq, tile.batch, p.q_len, p.q_len, p.q_heads, tile.head, p.head_dim, tile.first),
      (p.accumulate & p.dq) != 0);
}

// A block per tile of keys, over the query heads of the group and the queries that see them. dk or dv.
template <class T, int Chunks, bool IsKeys>
MIXTAPE_DEVICE void attention_dkv(const AttentionParams& p, const AttentionReads<T>& in,
                                  Global<const std::int32_t> lengths, Global<T> gradient,
                                  Global<std::uint64_t> errors, Shared<float> tile_a, Shared<float> tile_b) {
  const TileOfHead tile = tile_of_head(p.k_len, p.kv_heads, false);
  const int group = static_cast<int>(p.q_heads / p.kv_heads);
  const int count = static_cast<int>(p.k_len) - tile.first;
  const int length = attention_length(p, lengths, tile.batch, errors);
  const AttentionRange all = queries_that_see(p, length, tile.first, tile.first + kTile);
  Sums out[Chunks] = {};
  for (int head = tile.head * group; head < (tile.head + 1) * group; ++head) {
    for (int first = all.begin; first < all.end; first += kTile) {
      Sums weights = {};
      tile_weights<IsKeys>(p, in, tile.batch, head, length, first, tile.first, tile_a, tile_b, weights);
      barrier();
      keep_weights<false>(weights, tile_a);
      add_weighted<Chunks>(
          count,
          head_rows(IsKeys ? in.q : in.dy, tile.batch, p.q_len, p.q_len, p.q_heads, head, p.head_dim, first),
          IsKeys ? p.scale : 1.0f, tile_a, tile_b, out);
    }
  }
  store_rows<Chunks>(
      out, {1.0f, 1.0f, 1.0f, 1.0f},
      head_rows(gradient, tile.batch, p.k_rows, p.k_len, p.kv_heads, tile.head, p.head_dim, tile.first),
      (p.accumulate & (IsKeys ? p.dk : p.dv)) != 0);
}

#define BACKWARD_CHUNKS(NAME, T, CHUNKS, ...)                                                              \
  MIXTAPE_KERNEL_BLOCKS(attention_##NAME##_##T##_##CHUNKS, 256, 1, AttentionParams p, Global<const T> q,   \
                        Global<const T> k, Global<const T> v, Global<const T> dy, Global<const float> lse, \
                        Global<const float> delta, Global<const std::int32_t> lengths, Global<T> gradient, \
                        Global<std::uint64_t> errors) {                                                    \
    await_earlier();                                                                                       \
    MIXTAPE_SHARED(float, tile_a, kTile* kPitch);                                                          \
    MIXTAPE_SHARED(float, tile_b, kTile* kPitch);                                                          \
    __VA_ARGS__(p, {q, k, v, dy, lse, delta}, lengths, gradient, errors, tile_a, tile_b);                  \
  }
#define BACKWARD_OF(T, CHUNKS)                                   \
  BACKWARD_CHUNKS(dq, T, CHUNKS, attention_dq<T, CHUNKS>)        \
  BACKWARD_CHUNKS(dk, T, CHUNKS, attention_dkv<T, CHUNKS, true>) \
  BACKWARD_CHUNKS(dv, T, CHUNKS, attention_dkv<T, CHUNKS, false>)
#define BACKWARD(T) \
  BACKWARD_OF(T, 1) \
  BACKWARD_OF(T, 2) \
  BACKWARD_OF(T, 4)
MIXTAPE_VALUE_KERNELS(BACKWARD)

}  // namespace mixtape
