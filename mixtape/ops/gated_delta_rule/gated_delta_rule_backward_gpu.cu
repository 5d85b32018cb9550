// After `chunks` (gated_delta_rule_gpu.cu): `backward_states` goes back from chunk to chunk as the forward does, for the
// gradients of states and values; `backward_keys`, all chunks at once, does the rest.
#include "mixtape/ops/gated_delta_rule/gated_delta_rule_products_gpu.h"

namespace mixtape {

// From the last chunk on: dr, the gradients of beta (V - D[t] K S^T), dv, and the gradients of the states after
// each chunk and of the first one.
template <class T>
MIXTAPE_DEVICE void delta_backward_states(const GatedDeltaRuleParams& p, Global<const T> q, Global<const T> k,
                                          Global<const float> betas, Global<const T> dy,
                                          Global<const float> dfinal, Global<const float> solved,
                                          Global<const float> weights, Global<const float> decays,
                                          Global<float> dr, Global<float> dstates, Global<T> dv,
                                          Global<float> dinitial, Shared<float> shared) {
  const DeltaSlice s(p, shared);
  const Shared<float> to_end = s.factors, beta = to_end + kDeltaChunk, query_factors = beta + kDeltaChunk,
                      key_factors = query_factors + kDeltaChunk;
  const int dim = static_cast<int>(p.key_dim);
  s.load(p, p.has_dfinal != 0, p.has_dfinal != 0 ? dfinal + s.own(p) : dfinal);
  MIXTAPE_ROLLED
  for (std::int64_t chunk = p.chunks() - 1; chunk >= 0; --chunk) {
    const DeltaPlace place(p, s.b, s.head, chunk);
    s.store(p, dstates + s.at(p, place.index(p)));
    const Global<const float> own = decays + place.index(p) * kDeltaDecays;
    const int t = flat_thread();
    if (t < kDeltaChunk) {
      to_end[t] = own[kDeltaChunk + t];
      beta[t] = t < place.count ? static_cast<float>(betas[place.gates(p) + t * p.value_heads]) : 0.0f;
      query_factors[t] = own[t] * p.scale;
      key_factors[t] = -own[t] * beta[t];
    }
    const auto upstream = value_rows<T>(p, place, dy, s.first);
    DeltaTile<2> tile;
    tile.clear();
    tile.add_product(dim, key_rows<T>(p, place, k), turned(s.state_rows(p)), s.stage);
    tile.scale_rows(to_end);
    tile.add_product(kDeltaChunk, turned(square(weights, p, place)), upstream, s.stage);
    s.keep(tile, s.x);
    tile.clear();
    tile.add_product(kDeltaChunk, turned(square(solved, p, place)), s.rows_of(s.x), s.stage);
    s.keep(tile, s.y);
    MIXTAPE_UNROLL
    for (int r = 0; r < 4; ++r) {
      MIXTAPE_UNROLL
      for (int c = 0; c < 2; ++c) {
        const int row = tile.row(r);
        if (row >= place.count || tile.col(c) >= s.cols) continue;
        const std::int64_t at = place.values(p) + row * p.value_heads * p.value_dim + s.first + tile.col(c);
        dr[at] = tile.v[r][c];
        if ((p.wanted & p.dv) == 0) continue;
        const float d = beta[row] * tile.v[r][c];
        dv[at] = from_f32<T>((p.accumulate & p.dv) != 0 ? to_f32(dv[at]) + d : d);
      }
    }
    const float whole = own[kDeltaChunk - 1];
    for (int key = 0; key < dim; key += kDeltaChunk) {
      tile.clear();
      tile.add_product(kDeltaChunk, turned(scaled(key_rows<T>(p, place, q, key), query_factors)), upstream,
                       s.stage);
      tile.add_product(kDeltaChunk, turned(scaled(key_rows<T>(p, place, k, key), key_factors)),
                       s.rows_of(s.y), s.stage);
      s.advance(p, tile, key, whole);
    }
    barrier();
  }
  if ((p.wanted & p.dinitial) == 0) return;
  for (int i = flat_thread(); i < s.size(p); i += 256) {
    const std::int64_t at = s.own(p) + i;
    const float d = s.state[i];
    dinitial[at] = (p.accumulate & p.dinitial) != 0 ? dinitial[at] + d : d;
  }
}

// Shared memory of a block of backward_keys.
struct DeltaKeys {
  Shared<float> stage, dweights, da, start, to_end, high, low, beta, query_factors, key_factors, dbeta, dg;
  static constexpr int kStep = kDeltaChunk + 1;
  static constexpr int kFloats = kDeltaStage + 2 * kDeltaChunk * kStep + 9 * kDeltaChunk;

  MIXTAPE_DEVICE explicit DeltaKeys(Shared<float> shared) {
    stage = shared;
    dweights = stage + kDeltaStage;
    da = dweights + kDeltaChunk * kStep;
    start = da + kDeltaChunk * kStep;
    to_end = start + kDeltaChunk;
    high = to_end + kDeltaChunk;
    low = high + kDeltaChunk;
    beta = low + kDeltaChunk;
    query_factors = beta + kDeltaChunk;
    key_factors = query_factors + kDeltaChunk;
    dbeta = key_factors + kDeltaChunk;
    dg = dbeta + kDeltaChunk;
  }
  MIXTAPE_DEVICE void load(const GatedDeltaRuleParams& p, const DeltaPlace& place, Global<const float> betas,
                           Global<const float> decays) const {
    const int t = flat_thread();
    if (t >= kDeltaChunk) return;
    const Global<const float> own = decays + place.index(p) * kDeltaDecays;
    start[t] = own[t];
    to_end[t] = own[kDeltaChunk + t];
    high[t] = own[2 * kDeltaChunk + t];
    low[t] = own[3 * kDeltaChunk + t];
    beta[t] = t < place.count ? static_cast<float>(betas[place.gates(p) + t * p.value_heads]) : 0.0f;
    query_factors[t] = own[t] * p.scale;
    key_factors[t] = -own[t] * beta[t];
  }
  MIXTAPE_DEVICE DeltaMatrix<Shared<const float>> rows_of(Shared<const float> m) const {
    return delta_matrix<Shared<const float>>(m, kStep, kDeltaChunk, kDeltaChunk);
  }
};

// The sum of a thread's four rows over the 16 threads that share them, to or onto to[row].
MIXTAPE_DEVICE void put_row_sums(const float (&sums)[4], Shared<float> to) {
  MIXTAPE_UNROLL
  for (int r = 0; r < 4; ++r) {
    float sum = sums[r];
    for (int mask = 8; mask > 0; mask /= 2) sum += lane_xor(sum, mask);
    if (thread_x() == 0) to[DeltaTile<4>::row(r)] = sum;
  }
}

// U once more, to `u`; sums of dr (V - D[t] K S^T) to dbeta.
template <class T>
MIXTAPE_DEVICE void delta_values(const GatedDeltaRuleParams& p, const DeltaPlace& place, const DeltaKeys& s,
                                 Global<const T> k, Global<const T> v, Global<const float> states,
                                 Global<const float> solved, Global<const float> dr, Global<float> u,
                                 float (&dbeta)[4]) {
  const int keys = static_cast<int>(p.key_dim), values = static_cast<int>(p.value_dim);
  for (int first = 0; first < values; first += kDeltaChunk) {
    const auto state = delta_matrix<Global<const float>>(
        states + (place.index(p) * p.state_size() + first * p.key_dim), p.key_dim, values - first, keys);
    const auto own = value_rows<T>(p, place, v, first);
    const auto slopes = value_rows<float>(p, place, dr, first);
    DeltaTile<4> tile;
    tile.clear();
    tile.add_product(keys, key_rows<T>(p, place, k), turned(state), s.stage);
    MIXTAPE_UNROLL
    for (int r = 0; r < 4; ++r) {
      const int row = tile.row(r);
      MIXTAPE_UNROLL
      for (int c = 0; c < 4; ++c) {
        const float z = fma_f32(-s.start[row], tile.v[r][c], own(row, tile.col(c)));
        dbeta[r] = fma_f32(slopes(row, tile.col(c)), z, dbeta[r]);
        s.dweights[row * s.kStep + tile.col(c)] = s.beta[row] * z;
      }
    }
    tile.clear();
    tile.add_product(kDeltaChunk, square(solved, p, place), s.rows_of(s.dweights), s.stage);
    MIXTAPE_UNROLL
    for (int r = 0; r < 4; ++r) {
      MIXTAPE_UNROLL
      for (int c = 0; c < 4; ++c) {
        if (tile.row(r) < place.count && first + tile.col(c) < values)
          u[place.values(p) + tile.row(r) * p.value_heads * p.value_dim + first + tile.col(c)] = tile.v[r][c];
      }
    }
  }
}

// The gradients of scale D[t,j] q[t].k[j] and of beta[t] D[t,j] k[t].k[j], with D.
template <class T>
MIXTAPE_DEVICE void delta_squares(const GatedDeltaRuleParams& p, const DeltaPlace& place, const DeltaKeys& s,
                                  Global<const T> dy, Global<const float> dr, Global<const float> u) {
  const auto added = turned(value_rows<float>(p, place, u));
  DeltaTile<4> of_weights, of_a;
  of_weights.clear();
  of_weights.add_product(static_cast<int>(p.value_dim), value_rows<T>(p, place, dy), added, s.stage);
  of_a.clear();
  of_a.add_product(static_cast<int>(p.value_dim), value_rows<float>(p, place, dr), added, s.stage);
  MIXTAPE_UNROLL
  for (int r = 0; r < 4; ++r) {
    MIXTAPE_UNROLL
    for (int c = 0; c < 4; ++c) {
      const int t = of_a.row(r), j = of_a.col(c);
      const float decay = j <= t ? decay_between(s.high, s.low, t, j) : 0.0f;
      s.dweights[t * s.kStep + j] = j <= t ? of_weights.v[r][c] * p.scale * decay : 0.0f;
      s.da[t * s.kStep + j] = j < t ? -of_a.v[r][c] * decay : 0.0f;
    }
  }
}

// dq or dk, summed over a group's heads in `sums` (null for a group of one).
template <class T>
struct DeltaOutput {
  Global<T> out;
  Global<float> sums;
  bool is_first, is_last, is_wanted, accumulate;

  MIXTAPE_DEVICE void put(const GatedDeltaRuleParams& p, const DeltaPlace& place, const DeltaTile<4>& tile,
                          int first) const {
    MIXTAPE_UNROLL
    for (int r = 0; r < 4; ++r) {
      MIXTAPE_UNROLL
      for (int c = 0; c < 4; ++c) {
        const int key = first + tile.col(c);
        if (!is_wanted || tile.row(r) >= place.count || key >= p.key_dim) continue;
        const std::int64_t at = place.keys(p) + tile.row(r) * p.key_heads * p.key_dim + key;
        const float sum = is_first ? tile.v[r][c] : sums[at] + tile.v[r][c];
        if (is_last) {
          out[at] = from_f32<T>(accumulate ? to_f32(out[at]) + sum : sum);
        } else {
          sums[at] = sum;
        }
      }
    }
  }
};

// Sums over a thread's rows and columns.
struct DeltaRowSums {
  float dg[4] = {}, dbeta[4] = {};
  float last = 0.0f;  // of what the chunk's whole decay is multiplied with
};

template <class T>
MIXTAPE_DEVICE void delta_key_columns(const GatedDeltaRuleParams& p, const DeltaPlace& place,
                                      const DeltaKeys& s, int first, Global<const T> q, Global<const T> k,
                                      Global<const T> dy, Global<const float> states, Global<const float> dr,
                                      Global<const float> u, Global<const float> dstates,
                                      const DeltaOutput<T>& dq, const DeltaOutput<T>& dk,
                                      DeltaRowSums& sums) {
  const int values = static_cast<int>(p.value_dim), width = static_cast<int>(p.key_dim) - first;
  const auto keys = key_rows<T>(p, place, k, first), queries = key_rows<T>(p, place, q, first);
  const std::int64_t at = place.index(p) * p.state_size() + first;
  const auto state = delta_matrix<Global<const float>>(states + at, p.key_dim, values, width);
  const auto dstate = delta_matrix<Global<const float>>(dstates + at, p.key_dim, values, width);
  const auto dweights = s.rows_of(s.dweights), da = s.rows_of(s.da);
  DeltaTile<4> tile, dkey;
  tile.clear();
  tile.add_product(values, scaled(value_rows<T>(p, place, dy), s.query_factors), state, s.stage);
  tile.add_product(kDeltaChunk, dweights, keys, s.stage);
  MIXTAPE_UNROLL
  for (int r = 0; r < 4; ++r) {
    MIXTAPE_UNROLL
    for (int c = 0; c < 4; ++c)
      sums.dg[r] = fma_f32(queries(tile.row(r), tile.col(c)), tile.v[r][c], sums.dg[r]);
  }
  dq.put(p, place, tile, first);
  // dk where k asks.
  dkey.clear();
  dkey.add_product(values, scaled(value_rows<float>(p, place, dr), s.key_factors), state, s.stage);
  tile.clear();
  tile.add_product(kDeltaChunk, da, keys, s.stage);
  MIXTAPE_UNROLL
  for (int r = 0; r < 4; ++r) {
    MIXTAPE_UNROLL
    for (int c = 0; c < 4; ++c) {
      const float key = keys(tile.row(r), tile.col(c));
      sums.dbeta[r] = fma_f32(key, tile.v[r][c], sums.dbeta[r]);
      dkey.v[r][c] = fma_f32(s.beta[tile.row(r)], tile.v[r][c], dkey.v[r][c]);
      sums.dg[r] = fma_f32(key, dkey.v[r][c], sums.dg[r]);
    }
  }
  // dk where it is asked.
  tile.clear();
  tile.add_product(values, value_rows<float>(p, place, u), dstate, s.stage);
  tile.scale_rows(s.to_end);
  MIXTAPE_UNROLL
  for (int r = 0; r < 4; ++r) {
    MIXTAPE_UNROLL
    for (int c = 0; c < 4; ++c) sums.last = fma_f32(keys(tile.row(r), tile.col(c)), tile.v[r][c], sums.last);
  }
  tile.add_product(kDeltaChunk, turned(dweights), queries, s.stage);
  tile.add_product(kDeltaChunk, turned(scaled(da, s.beta)), keys, s.stage);
  MIXTAPE_UNROLL
  for (int r = 0; r < 4; ++r) {
    MIXTAPE_UNROLL
    for (int c = 0; c < 4; ++c) {
      sums.dg[r] = fma_f32(-keys(tile.row(r), tile.col(c)), tile.v[r][c], sums.dg[r]);
      dkey.v[r][c] += tile.v[r][c];
    }
  }
  dk.put(p, place, dkey, first);
}

// dg and dbeta: dg of a position is the sum of the rows from it to the chunk's end, and of `last`.
MIXTAPE_DEVICE void delta_put_gates(const GatedDeltaRuleParams& p, const DeltaPlace& place,
                                    const DeltaKeys& s, float last, Global<float> dg, Global<float> dbeta) {
  barrier();
  if (flat_thread() == 0) {
    float sum = last;
    for (int t = kDeltaChunk - 1; t >= 0; --t) {
      sum += s.dg[t];
      s.dg[t] = sum;
    }
  }
  barrier();
  const int t = flat_thread();
  if (t >= place.count) return;
  const std::int64_t at = place.gates(p) + t * p.value_heads;
  const float of_g = s.dg[t], of_beta = s.dbeta[t];
  if ((p.wanted & p.dg) != 0) dg[at] = (p.accumulate & p.dg) != 0 ? dg[at] + of_g : of_g;
  if ((p.wanted & p.dbeta) != 0) dbeta[at] = (p.accumulate & p.dbeta) != 0 ? dbeta[at] + of_beta : of_beta;
}

template <class T>
MIXTAPE_DEVICE void delta_backward_keys(const GatedDeltaRuleParams& p, Global<const T> q, Global<const T> k,
                                        Global<const T> v, Global<const float> betas,
                                        Global<const float> states, Global<const T> dy,
                                        Global<const float> solved, Global<const float> decays,
                                        Global<const float> dr, Global<const float> dstates, Global<float> u,
                                        Global<float> dq_sums, Global<float> dk_sums, Global<T> dq,
                                        Global<T> dk, Global<float> dg, Global<float> dbeta,
                                        Shared<float> shared) {
  const DeltaKeys s(shared);
  const std::int64_t of_all = block_x() / p.chunks(), first_head = of_all % p.key_heads * p.group();
  for (std::int64_t i = 0; i < p.group(); ++i) {
    const DeltaPlace place(p, of_all / p.key_heads, first_head + i, block_x() % p.chunks());
    const bool is_first = i == 0, is_last = i + 1 == p.group();
    barrier();
    s.load(p, place, betas, decays);
    DeltaRowSums sums;
    delta_values<T>(p, place, s, k, v, states, solved, dr, u, sums.dbeta);
    delta_squares<T>(p, place, s, dy, dr, u);
    const DeltaOutput<T> of_q{
        dq, dq_sums, is_first, is_last, (p.wanted & p.dq) != 0, (p.accumulate & p.dq) != 0};
    const DeltaOutput<T> of_k{
        dk, dk_sums, is_first, is_last, (p.wanted & p.dk) != 0, (p.accumulate & p.dk) != 0};
    for (int first = 0; first < p.key_dim; first += kDeltaChunk)
      delta_key_columns<T>(p, place, s, first, q, k, dy, states, dr, u, dstates, of_q, of_k, sums);
    put_row_sums(sums.dg, s.dg);
    put_row_sums(sums.dbeta, s.dbeta);
    const float whole = s.start[kDeltaChunk - 1];
    const std::int64_t at = place.index(p) * p.state_size();
    float product = 0.0f;
    for (std::int64_t e = flat_thread(); e < p.state_size(); e += 256)
      product = fma_f32(states[at + e], dstates[at + e], product);
    barrier();
    const float last = block_sum(fma_f32(whole, product, sums.last), s.stage);
    delta_put_gates(p, place, s, last, dg, dbeta);
  }
}

#define DELTA_KERNELS(T)                                                                                     \
  MIXTAPE_KERNEL(gated_delta_rule_backward_states_##T, 256, GatedDeltaRuleParams p, Global<const T> q,       \
                 Global<const T> k, Global<const float> beta, Global<const T> dy,                            \
                 Global<const float> dfinal, Global<const float> solved, Global<const float> weights,        \
                 Global<const float> decays, Global<float> dr, Global<float> dstates, Global<T> dv,          \
                 Global<float> dinitial) {                                                                   \
    await_earlier();                                                                                         \
    MIXTAPE_SHARED_DYNAMIC(float, shared);                                                                   \
    delta_backward_states<T>(p, q, k, beta, dy, dfinal, solved, weights, decays, dr, dstates, dv, dinitial,  \
                             shared);                                                                        \
  }                                                                                                          \
  MIXTAPE_KERNEL(gated_delta_rule_backward_keys_##T, 256, GatedDeltaRuleParams p, Global<const T> q,         \
                 Global<const T> k, Global<const T> v, Global<const float> beta, Global<const float> states, \
                 Global<const T> dy, Global<const float> solved, Global<const float> decays,                 \
                 Global<const float> dr, Global<const float> dstates, Global<float> u,                       \
                 Global<float> dq_sums, Global<float> dk_sums, Global<T> dq, Global<T> dk, Global<float> dg, \
                 Global<float> dbeta) {                                                                      \
    await_earlier();                                                                                         \
    MIXTAPE_SHARED(float, shared, DeltaKeys::kFloats);                                                       \
    delta_backward_keys<T>(p, q, k, v, beta, states, dy, solved, decays, dr, dstates, u, dq_sums, dk_sums,   \
                           dq, dk, dg, dbeta, shared);                                                       \
  }
MIXTAPE_VALUE_KERNELS(DELTA_KERNELS)

}  // namespace mixtape
