// `chunks` makes what a chunk needs by itself, for all chunks at once: (I + A)^-1, the weights of q[t].k[j] and the
// decays; then `forward` goes from chunk to chunk, a block for each head and slice of values, and holds its part of the
// state in shared memory.
#include "mixtape/ops/gated_delta_rule/gated_delta_rule_products_gpu.h"

namespace mixtape {

template <class T>
MIXTAPE_DEVICE void delta_chunks(const GatedDeltaRuleParams& p, Global<const T> q, Global<const T> k,
                                 Global<const float> g, Global<const float> betas, Global<float> solved,
                                 Global<float> weights, Global<float> decays, Shared<float> stage,
                                 Shared<float> a, Shared<float> inverse, Shared<float> gates) {
  constexpr int kStep = kDeltaChunk + 1;
  const std::int64_t index = block_x();
  const std::int64_t of_all = index / p.chunks();
  const DeltaPlace place(p, of_all / p.value_heads, of_all % p.value_heads, index % p.chunks());
  const Shared<float> high = gates, low = gates + kDeltaChunk, beta = gates + 2 * kDeltaChunk;
  load_gates(p, place, g, betas, high, low, beta);
  const auto keys = key_rows<T>(p, place, k), queries = key_rows<T>(p, place, q);
  const int dim = static_cast<int>(p.key_dim);
  DeltaTile<4> tile;
  tile.clear();
  tile.add_product(dim, keys, turned(keys), stage);
  MIXTAPE_UNROLL
  for (int r = 0; r < 4; ++r) {
    MIXTAPE_UNROLL
    for (int c = 0; c < 4; ++c) {
      const int t = tile.row(r), j = tile.col(c);
      a[t * kStep + j] = j < t ? tile.v[r][c] * beta[t] * decay_between(high, low, t, j) : 0.0f;
    }
  }
  tile.clear();
  tile.add_product(dim, queries, turned(keys), stage);
  MIXTAPE_UNROLL
  for (int r = 0; r < 4; ++r) {
    MIXTAPE_UNROLL
    for (int c = 0; c < 4; ++c) {
      const int t = tile.row(r), j = tile.col(c);
      weights[index * kDeltaSquare + t * kDeltaChunk + j] =
          j <= t ? tile.v[r][c] * p.scale * decay_between(high, low, t, j) : 0.0f;
    }
  }
  store_decays(high, low, decays + index * kDeltaDecays);
  // Every thread solves for a column.
  const int column = flat_thread();
  if (column < kDeltaChunk) {
    MIXTAPE_ROLLED
    for (int t = 0; t < kDeltaChunk; ++t) {
      float sum = t == column ? 1.0f : 0.0f;
      MIXTAPE_UNROLL_4
      for (int j = 0; j < t; ++j) sum = fma_f32(-a[t * kStep + j], inverse[j * kStep + column], sum);
      inverse[t * kStep + column] = sum;
    }
  }
  barrier();
  for (int i = flat_thread(); i < kDeltaSquare; i += 256)
    solved[index * kDeltaSquare + i] = static_cast<float>(inverse[i / kDeltaChunk * kStep + i % kDeltaChunk]);
}

template <class T>
MIXTAPE_DEVICE void delta_forward(const GatedDeltaRuleParams& p, Global<const T> q, Global<const T> k,
                                  Global<const T> v, Global<const float> betas, Global<const float> solved,
                                  Global<const float> weights, Global<const float> decays,
                                  Global<const float> initial, Global<T> y, Global<float> final_state,
                                  Global<float> states, Shared<float> shared) {
  const DeltaSlice s(p, shared);
  const Shared<float> start = s.factors, to_end = start + kDeltaChunk, beta = to_end + kDeltaChunk,
                      query_factors = beta + kDeltaChunk;
  const int dim = static_cast<int>(p.key_dim);
  s.load(p, p.has_initial != 0, p.has_initial != 0 ? initial + s.own(p) : initial);
  MIXTAPE_ROLLED
  for (std::int64_t chunk = 0; chunk < p.chunks(); ++chunk) {
    const DeltaPlace place(p, s.b, s.head, chunk);
    if (p.keeps_states != 0) s.store(p, states + s.at(p, place.index(p)));
    const int t = flat_thread();
    if (t < kDeltaChunk) {
      const Global<const float> own = decays + place.index(p) * kDeltaDecays;
      start[t] = own[t];
      to_end[t] = own[kDeltaChunk + t];
      beta[t] = t < place.count ? static_cast<float>(betas[place.gates(p) + t * p.value_heads]) : 0.0f;
      query_factors[t] = own[t] * p.scale;
    }
    const auto keys = key_rows<T>(p, place, k), queries = key_rows<T>(p, place, q);
    const auto values = value_rows<T>(p, place, v, s.first);
    DeltaTile<2> tile;
    tile.clear();
    tile.add_product(dim, keys, turned(s.state_rows(p)), s.stage);
    MIXTAPE_UNROLL
    for (int r = 0; r < 4; ++r) {
      const int row = tile.row(r);
      MIXTAPE_UNROLL
      for (int c = 0; c < 2; ++c)
        tile.v[r][c] = beta[row] * fma_f32(-start[row], tile.v[r][c], values(row, tile.col(c)));
    }
    s.keep(tile, s.x);
    tile.clear();
    tile.add_product(kDeltaChunk, square(solved, p, place), s.rows_of(s.x), s.stage);
    s.keep(tile, s.y);
    tile.clear();
    tile.add_product(dim, queries, turned(s.state_rows(p)), s.stage);
    tile.scale_rows(query_factors);
    tile.add_product(kDeltaChunk, square(weights, p, place), s.rows_of(s.y), s.stage);
    MIXTAPE_UNROLL
    for (int r = 0; r < 4; ++r) {
      MIXTAPE_UNROLL
      for (int c = 0; c < 2; ++c) {
        if (tile.row(r) >= place.count || tile.col(c) >= s.cols) continue;
        y[place.values(p) + tile.row(r) * p.value_heads * p.value_dim + s.first + tile.col(c)] =
            from_f32<T>(tile.v[r][c]);
      }
    }
    const float whole = start[kDeltaChunk - 1];
    for (int key = 0; key < dim; key += kDeltaChunk) {
      tile.clear();
      tile.add_product(kDeltaChunk, turned(scaled(key_rows<T>(p, place, k, key), to_end)), s.rows_of(s.y),
                       s.stage);
      s.advance(p, tile, key, whole);
    }
    barrier();
  }
  s.store(p, final_state + s.own(p));
}

#define DELTA_KERNELS(T)                                                                                     \
  MIXTAPE_KERNEL(gated_delta_rule_chunks_##T, 256, GatedDeltaRuleParams p, Global<const T> q,                \
                 Global<const T> k, Global<const float> g, Global<const float> beta, Global<float> solved,   \
                 Global<float> weights, Global<float> decays) {                                              \
    await_earlier();                                                                                         \
    MIXTAPE_SHARED(float, stage, kDeltaStage);                                                               \
    MIXTAPE_SHARED(float, a, kDeltaChunk*(kDeltaChunk + 1));                                                 \
    MIXTAPE_SHARED(float, inverse, kDeltaChunk*(kDeltaChunk + 1));                                           \
    MIXTAPE_SHARED(float, gates, 3 * kDeltaChunk);                                                           \
    delta_chunks<T>(p, q, k, g, beta, solved, weights, decays, stage, a, inverse, gates);                    \
  }                                                                                                          \
  MIXTAPE_KERNEL(gated_delta_rule_forward_##T, 256, GatedDeltaRuleParams p, Global<const T> q,               \
                 Global<const T> k, Global<const T> v, Global<const float> beta, Global<const float> solved, \
                 Global<const float> weights, Global<const float> decays, Global<const float> initial,       \
                 Global<T> y, Global<float> final_state, Global<float> states) {                             \
    await_earlier();                                                                                         \
    MIXTAPE_SHARED_DYNAMIC(float, shared);                                                                   \
    delta_forward<T>(p, q, k, v, beta, solved, weights, decays, initial, y, final_state, states, shared);    \
  }
MIXTAPE_VALUE_KERNELS(DELTA_KERNELS)

}  // namespace mixtape
