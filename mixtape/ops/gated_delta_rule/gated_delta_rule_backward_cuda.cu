// bf16 on matrix units, for up to 128 keys and values in multiples of 8; the same two kernels as
// gated_delta_rule_backward_gpu.cu has. What goes from chunk to chunk is kept in f32 and multiplied in two bf16
// parts; the gradients of a chunk's q, k, g and beta multiply what is rounded to bf16.
#include "mixtape/ops/gated_delta_rule/gated_delta_rule_tensor_gpu.h"

namespace mixtape {

struct DeltaBackwardMemory {
  Shared<bf16> state, turns, queries, weights, slopes, du, scaled_slopes, scaled_dr;
  MIXTAPE_DEVICE explicit DeltaBackwardMemory(Shared<bf16> memory) {
    state = memory;
    turns = state + 2 * kDeltaStateTile;
    queries = turns + 2 * kDeltaKeyTile;
    weights = queries + kDeltaKeyTile;
    slopes = weights + 2 * kDeltaSquare;
    du = slopes + kDeltaSliceTile;
    scaled_slopes = du + 2 * kDeltaSliceTile;
    scaled_dr = scaled_slopes + 2 * kDeltaSliceTile;
  }
};

// Rows of dr and dv of 16 positions from a warp's product of 16 values, by `stage`, 2 x [16][16].
struct DeltaValueGradients {
  Global<bf16> dr, dv;
};
MIXTAPE_DEVICE void store_value_gradients(const GatedDeltaRuleParams& p, const DeltaPlace& place,
                                          const DeltaColumns& c, int first_value, int first,
                                          Shared<float> beta, float (&dr)[1][2][4], Shared<bf16> stage,
                                          const DeltaValueGradients& out) {
  each_pair(dr, [&](int row, int col, float& v0, float& v1) {
    stage[col * 16 + row] = from_f32<bf16>(v0);
    stage[(col + 1) * 16 + row] = from_f32<bf16>(v1);
    stage[256 + col * 16 + row] = from_f32<bf16>(beta[first + col] * v0);
    stage[256 + (col + 1) * 16 + row] = from_f32<bf16>(beta[first + col + 1] * v1);
  });
  lane_barrier();
  const int t = lane() / 2, v = lane() % 2 * 8;
  if (first + t < place.count && first_value + v < c.cols) {
    const std::int64_t at =
        place.values(p) + (first + t) * p.value_heads * p.value_dim + c.first + first_value + v;
    store_pack(out.dr + at, load_pack<8>(stage + (t * 16 + v)));
    if ((p.wanted & p.dv) != 0) {
      Pack<bf16, 8> d = load_pack<8>(stage + (256 + t * 16 + v));
      if ((p.accumulate & p.dv) != 0) {
        const Pack<bf16, 8> old = load_pack<8>(out.dv + at);
        MIXTAPE_UNROLL
        for (int i = 0; i < 8; ++i) d.v[i] = from_f32<bf16>(to_f32(old.v[i]) + to_f32(d.v[i]));
      }
      store_pack(out.dv + at, d);
    }
  }
  lane_barrier();
}

MIXTAPE_DEVICE void delta_backward_states_tensor(const GatedDeltaRuleParams& p, Global<const bf16> q,
                                                 Global<const bf16> k, Global<const float> betas,
                                                 Global<const bf16> dy, Global<const float> dfinal,
                                                 Global<const bf16> solved, Global<const bf16> weights,
                                                 Global<const float> decays, const DeltaValueGradients& out,
                                                 Global<bf16> dstates, Global<float> dinitial,
                                                 Shared<bf16> memory, Shared<float> all_factors) {
  const DeltaColumns columns(p);
  const DeltaBackwardMemory m(memory);
  const int chunks = static_cast<int>(p.chunks());
  const auto place_at = [&](int chunk) { return DeltaPlace(p, columns.b, columns.head, chunk); };
  const auto copy_square = [&](const DeltaPlace& place, Global<const bf16> from, Shared<bf16> to) {
    copy_rows<kDeltaChunk, 2 * kDeltaChunk, 256>(delta_square(p, place, from, 2 * kDeltaChunk), to);
    commit_copies();
  };
  const auto copy_keys = [&](const DeltaPlace& place, Global<const bf16> from, Shared<bf16> to) {
    copy_rows<kDeltaTensorDim, kDeltaChunk, 256>(delta_keys(p, place, from), to);
    commit_copies();
  };
  // Of dy, 8 values of a position are in each thread's hands until they are needed once more.
  const int own_t = flat_thread() % kDeltaChunk, own_v = flat_thread() / kDeltaChunk * 8;
  Pack<bf16, 8> slopes;
  const auto load_slopes = [&](const DeltaPlace& place) {
    slopes = {};
    if (own_t < place.count && own_v < columns.cols)
      slopes =
          load_pack<8>(dy + (place.values(p) + own_t * p.value_heads * p.value_dim + columns.first + own_v));
  };
  const auto put_slopes = [&] {
    MIXTAPE_UNROLL
    for (int i = 0; i < 8; ++i) m.slopes[place_of<kDeltaChunk>(own_v + i, own_t)] = slopes.v[i];
  };
  const int quarter = warp() % 4 * 16, half = warp() / 4 * 16, key = warp() * 16;
  float s[2][2][4];
  const auto put_state = [&] { put_product<kDeltaTensorDim, kDeltaStateTile>(s, m.state, 0, key); };
  DeltaFactors factors;
  if (chunks > 0) {
    const DeltaPlace last = place_at(chunks - 1);
    copy_square(last, weights, m.weights);
    copy_keys(last, k, m.turns);
    copy_square(last, solved, m.turns + kDeltaKeyTile);
    copy_keys(last, q, m.queries);
    factors.load(p, last, decays, betas);
    factors.put(all_factors);
    load_slopes(last);
    put_slopes();
  }
  load_state(p, columns, key, p.has_dfinal != 0, dfinal, s);
  put_state();
  wait_copies<2>();
  barrier();
  MIXTAPE_ROLLED
  for (int i = 0; i < chunks; ++i) {
    const DeltaPlace place = place_at(chunks - 1 - i), next = place_at(chunks - 2 - i);
    const bool goes_on = i + 1 < chunks;
    const Shared<bf16> keys = m.turns + i % 2 * kDeltaKeyTile,
                       inverse = m.turns + (i + 1) % 2 * kDeltaKeyTile;
    const Shared<float> start = all_factors + i % 2 * 3 * kDeltaChunk, to_end = start + kDeltaChunk,
                        beta = to_end + kDeltaChunk;
    MIXTAPE_UNROLL
    for (int e = flat_thread(); e < kDeltaStateTile / 8; e += 256) {
      const int row = e / 16, chunk = e % 16;
      if (row < columns.cols && chunk * 8 < p.key_dim)
        store_pack(dstates + (columns.at(p, place) + row * p.key_dim + chunk * 8),
                   load_pack<8>(m.state + swizzled<kDeltaTensorDim>(row, chunk)));
    }
    MIXTAPE_UNROLL
    for (int e = 0; e < 8; ++e) {
      const float v = start[own_t] * p.scale * to_f32(slopes.v[e]);
      const int at = place_of<kDeltaChunk>(own_v + e, own_t);
      const bf16 high = from_f32<bf16>(v);
      m.scaled_slopes[at] = high;
      m.scaled_slopes[at + kDeltaSliceTile] = low_part(v, high);
    }
    float sums[1][2][4] = {};
    multiply_parts<kDeltaTensorDim>(DeltaOperand<kDeltaTensorDim, false, kDeltaStateTile>{m.state, half},
                                    DeltaOperand<kDeltaTensorDim, false>{keys, quarter}, sums);
    each_pair(sums, [&](int, int col, float& v0, float& v1) {
      v0 *= to_end[quarter + col], v1 *= to_end[quarter + col + 1];
    });
    multiply_parts<kDeltaChunk>(DeltaOperand<kDeltaChunk, false>{m.slopes, half},
                                DeltaOperand<kDeltaChunk, true, kDeltaSquare>{m.weights, quarter}, sums);
    put_product<kDeltaChunk, kDeltaSliceTile>(sums, m.du, half, quarter);
    wait_copies<1>();
    barrier();
    if (goes_on) {
      copy_square(next, weights, m.weights);
      load_slopes(next);
      factors.load(p, next, decays, betas);
    } else {
      commit_copies();
    }
    float dr[1][2][4] = {};
    multiply_parts<kDeltaChunk>(DeltaOperand<kDeltaChunk, false, kDeltaSliceTile>{m.du, half},
                                DeltaOperand<kDeltaChunk, true, kDeltaSquare>{inverse, quarter}, dr);
    float scaled[1][2][4];
    MIXTAPE_UNROLL
    for (int n = 0; n < 2; ++n) {
      MIXTAPE_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int t = quarter + n * 8 + lane() % 4 * 2 + e % 2;
        scaled[0][n][e] = -start[t] * beta[t] * dr[0][n][e];
      }
    }
    put_product<kDeltaChunk, kDeltaSliceTile>(scaled, m.scaled_dr, half, quarter);
    wait_copies<1>();
    barrier();
    if (goes_on) {
      copy_keys(next, k, inverse);
    } else {
      commit_copies();
    }
    const float whole = start[kDeltaChunk - 1];
    each_pair(s, [&](int, int, float& v0, float& v1) { v0 *= whole, v1 *= whole; });
    multiply_parts<kDeltaChunk>(DeltaOperand<kDeltaChunk, false, kDeltaSliceTile>{m.scaled_slopes, 0},
                                DeltaOperand<kDeltaTensorDim, true>{m.queries, key}, s);
    multiply_parts<kDeltaChunk>(DeltaOperand<kDeltaChunk, false, kDeltaSliceTile>{m.scaled_dr, 0},
                                DeltaOperand<kDeltaTensorDim, true>{keys, key}, s);
    put_state();
    store_value_gradients(p, place, columns, half, quarter, beta, dr, m.du + warp() * 512, out);
    if (goes_on) {
      put_slopes();
      factors.put(all_factors + (i + 1) % 2 * 3 * kDeltaChunk);
    }
    wait_copies<0>();
    barrier();
    if (!goes_on) break;
    copy_square(next, solved, keys);
    copy_keys(next, q, m.queries);
  }
  if ((p.wanted & p.dinitial) != 0)
    store_state(p, columns, key, columns.own(p), (p.accumulate & p.dinitial) != 0, dinitial, s);
}

MIXTAPE_KERNEL_BLOCKS(gated_delta_rule_backward_states_tensor, 256, 2, GatedDeltaRuleParams p,
                      Global<const bf16> q, Global<const bf16> k, Global<const float> beta,
                      Global<const bf16> dy, Global<const float> dfinal, Global<const bf16> solved,
                      Global<const bf16> weights, Global<const float> decays, Global<bf16> dr,
                      Global<bf16> dstates, Global<bf16> dv, Global<float> dinitial) {
  await_earlier();
  MIXTAPE_SHARED_DYNAMIC(bf16, memory);
  MIXTAPE_SHARED(float, factors, 6 * kDeltaChunk);
  delta_backward_states_tensor(p, q, k, beta, dy, dfinal, solved, weights, decays, {dr, dv}, dstates,
                               dinitial, memory, factors);
}

// A block of 512 threads has a chunk of a key head: 4 x 4 warps share 64 rows by 128 or 64 columns.
constexpr int kKeysThreads = 512;
constexpr int kHeadTile = kDeltaTensorDim * kDeltaTensorDim;
struct DeltaKeysMemory {
  Shared<bf16> keys, queries, slopes, dr, state, dstate, z, u, solved, dweights, da, scaled_da;
  MIXTAPE_DEVICE explicit DeltaKeysMemory(Shared<bf16> memory) {
    keys = memory;
    queries = keys + kDeltaKeyTile;
    slopes = queries + kDeltaKeyTile;
    dr = slopes + kDeltaKeyTile;
    state = dr + kDeltaKeyTile;
    dstate = state + kHeadTile;
    z = dstate + kHeadTile;
    u = z + kDeltaKeyTile;
    solved = u + kDeltaKeyTile;
    dweights = solved + kDeltaSquare;
    da = dweights + kDeltaSquare;
    scaled_da = da + kDeltaSquare;
  }
};
// Its floats: a chunk's factors, running sums of g as two floats, and sums of rows: of each warp's columns, of all.
struct DeltaKeysFloats {
  Shared<float> start, to_end, beta, high, low, dg, dbeta, rows, scratch;
  static constexpr int kCount = 5 * kDeltaChunk + 9 * kDeltaChunk + 32;
  MIXTAPE_DEVICE explicit DeltaKeysFloats(Shared<float> memory) {
    start = memory;
    to_end = start + kDeltaChunk;
    beta = to_end + kDeltaChunk;
    high = beta + kDeltaChunk;
    low = high + kDeltaChunk;
    dg = low + kDeltaChunk;
    dbeta = dg + 4 * kDeltaChunk;
    rows = dbeta + 4 * kDeltaChunk;
    scratch = rows + kDeltaChunk;
  }
};

// This lane's part of sums over the columns of its two rows.
struct DeltaLaneSums {
  float dg[2] = {}, dbeta[2] = {};
  float last = 0.0f;  // of what the chunk's whole decay is multiplied with
};

MIXTAPE_DEVICE void put_lane_sums(const float (&sums)[2], int row, int col, Shared<float> to) {
  MIXTAPE_UNROLL
  for (int half = 0; half < 2; ++half) {
    float sum = sums[half];
    sum += lane_xor(sum, 1);
    sum += lane_xor(sum, 2);
    if (lane() % 4 == 0) to[col * kDeltaChunk + row + half * 8 + lane() / 4] = sum;
  }
}

// A head's state before the chunk, rounded; 0 beyond its keys and values.
MIXTAPE_DEVICE void put_state_rows(const GatedDeltaRuleParams& p, Global<const float> from, Shared<bf16> to) {
  MIXTAPE_UNROLL
  for (int i = flat_thread(); i < kHeadTile / 8; i += kKeysThreads) {
    const int row = i / 16, chunk = i % 16;
    Pack<bf16, 8> rounded = {};
    if (row < p.value_dim && chunk * 8 < p.key_dim) {
      const Pack<float, 8> v = load_pack<8>(from + (row * p.key_dim + chunk * 8));
      MIXTAPE_UNROLL
      for (int e = 0; e < 8; ++e) rounded.v[e] = from_f32<bf16>(v.v[e]);
    }
    store_pack(to + swizzled<kDeltaTensorDim>(row, chunk), rounded);
  }
}

// Gradients of 16 positions and 32 keys.
MIXTAPE_DEVICE void store_key_gradients(const GatedDeltaRuleParams& p, const DeltaPlace& place, int row,
                                        int col, float (&sums)[1][4][4], bool accumulate, Global<bf16> out) {
  MIXTAPE_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int t = row + half * 8 + lane() / 4;
    MIXTAPE_UNROLL
    for (int n = 0; n < 4; n += 2) {
      const float(&l)[4] = sums[0][n];
      const float(&r)[4] = sums[0][n + 1];
      float v[4];
      const int key =
          col + n * 8 + gather_four(l[half * 2], l[half * 2 + 1], r[half * 2], r[half * 2 + 1], v);
      if (t < place.count && key < p.key_dim)
        store_values(v, out + (place.keys(p) + t * p.key_heads * p.key_dim + key), accumulate);
    }
  }
}

struct DeltaKeysReads {
  Global<const bf16> q, k, v;
  Global<const float> betas, states;
  Global<const bf16> dy, solved;
  Global<const float> decays;
  Global<const bf16> dr, dstates;
};

// A value head's part of dq and dk, added to them, and its dg and dbeta.
struct DeltaKeysHead {
  const GatedDeltaRuleParams& p;
  const DeltaPlace& place;
  const DeltaKeysMemory& m;
  const DeltaKeysFloats& f;
  int row, col;  // of the warp: 16 rows, 32 columns
  DeltaLaneSums sums;

  using Natural = DeltaOperand<kDeltaTensorDim, false>;
  using Dense = DeltaOperand<kDeltaTensorDim, true>;
  using Square = DeltaOperand<kDeltaChunk, false>;
  using DenseSquare = DeltaOperand<kDeltaChunk, true>;

  MIXTAPE_DEVICE void load(const DeltaKeysReads& in) const {
    const int t = flat_thread();
    if (t < kDeltaChunk) {
      const Global<const float> own = in.decays + place.index(p) * kDeltaDecays;
      f.start[t] = own[t];
      f.to_end[t] = own[kDeltaChunk + t];
      f.high[t] = own[2 * kDeltaChunk + t];
      f.low[t] = own[3 * kDeltaChunk + t];
      f.beta[t] = t < place.count ? static_cast<float>(in.betas[place.gates(p) + t * p.value_heads]) : 0.0f;
    }
    constexpr int kDim = kDeltaTensorDim;
    copy_rows<kDim, kDeltaChunk, kKeysThreads>(delta_values_of(p, place, in.dy), m.slopes);
    copy_rows<kDim, kDeltaChunk, kKeysThreads>(delta_values_of(p, place, in.dr), m.dr);
    copy_rows<kDeltaChunk, kDeltaChunk, kKeysThreads>(delta_square(p, place, in.solved, kDeltaChunk),
                                                      m.solved);
    commit_copies();
    const std::int64_t at = place.index(p) * p.state_size();
    copy_rows<kDim, kDim, kKeysThreads>(
        TensorRows<bf16>{in.dstates + at, static_cast<int>(p.key_dim), static_cast<int>(p.value_dim),
                         static_cast<int>(p.key_dim)},
        m.dstate);
    commit_copies();
    put_state_rows(p, in.states + at, m.state);
  }

  // z = beta (v - D[t] K S^T), u = (I + A)^-1 z, and of dbeta dr (v - D[t] K S^T).
  MIXTAPE_DEVICE void make_values(Global<const bf16> v) {
    const auto own = delta_values_of(p, place, v);
    Pack<bf16, 2> values[4][2];  // asked for before the product
    MIXTAPE_UNROLL
    for (int n = 0; n < 4; ++n) {
      MIXTAPE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int t = row + half * 8 + lane() / 4, at = col + n * 8 + lane() % 4 * 2;
        values[n][half] = {};
        if (t < own.count && at < own.dim) values[n][half] = load_pack<2>(own.p + (t * own.step + at));
      }
    }
    float product[1][4][4] = {};
    multiply_parts<kDeltaTensorDim>(Natural{m.keys, row}, Natural{m.state, col}, product);
    MIXTAPE_UNROLL
    for (int n = 0; n < 4; ++n) {
      MIXTAPE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int t = row + half * 8 + lane() / 4;
        const Pack<bf16, 2> slope = pair_at<kDeltaTensorDim>(m.dr, t, col + n * 8 + lane() % 4 * 2);
        MIXTAPE_UNROLL
        for (int e = 0; e < 2; ++e) {
          float& v_of = product[0][n][half * 2 + e];
          const float z = fma_f32(-f.start[t], v_of, to_f32(values[n][half].v[e]));
          sums.dbeta[half] = fma_f32(to_f32(slope.v[e]), z, sums.dbeta[half]);
          v_of = f.beta[t] * z;
        }
      }
    }
    put_product<kDeltaTensorDim>(product, m.z, row, col);
    barrier();
    clear(product);
    multiply_parts<kDeltaChunk>(Square{m.solved, row}, Dense{m.z, col}, product);
    put_product<kDeltaTensorDim>(product, m.u, row, col);
  }

  // The gradients of scale D[t,j] q[t].k[j] and of D[t,j] k[t].k[j], the second times beta[t] too.
  MIXTAPE_DEVICE void make_squares() const {
    const int first = col / 2;
    float of_weights[1][2][4] = {}, of_a[1][2][4] = {};
    multiply_parts<kDeltaTensorDim>(Natural{m.slopes, row}, Natural{m.u, first}, of_weights);
    multiply_parts<kDeltaTensorDim>(Natural{m.dr, row}, Natural{m.u, first}, of_a);
    float scaled_a[1][2][4];
    MIXTAPE_UNROLL
    for (int n = 0; n < 2; ++n) {
      MIXTAPE_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int t = row + e / 2 * 8 + lane() / 4, j = first + n * 8 + lane() % 4 * 2 + e % 2;
        const float decay = j <= t ? decay_between(f.high, f.low, t, j) : 0.0f;
        of_weights[0][n][e] = j <= t ? of_weights[0][n][e] * p.scale * decay : 0.0f;
        of_a[0][n][e] = j < t ? -of_a[0][n][e] * decay : 0.0f;
        scaled_a[0][n][e] = f.beta[t] * of_a[0][n][e];
      }
    }
    put_product<kDeltaChunk>(of_weights, m.dweights, row, first);
    put_product<kDeltaChunk>(of_a, m.da, row, first);
    put_product<kDeltaChunk>(scaled_a, m.scaled_da, row, first);
  }

  MIXTAPE_DEVICE void add_query_gradients(float (&dq)[1][4][4]) {
    float product[1][4][4] = {};
    multiply_parts<kDeltaTensorDim>(Natural{m.slopes, row}, Dense{m.state, col}, product);
    each_pair(product, [&](int r, int, float& v0, float& v1) {
      const float factor = f.start[row + r] * p.scale;
      v0 *= factor, v1 *= factor;
    });
    multiply_parts<kDeltaChunk>(Square{m.dweights, row}, Dense{m.keys, col}, product);
    each_pair_of_half(product, [&](int half, int r, int c, float& v0, float& v1) {
      const Pack<bf16, 2> query = pair_at<kDeltaTensorDim>(m.queries, row + r, col + c);
      float& sum = sums.dg[half];
      sum = fma_f32(to_f32(query.v[0]), v0, fma_f32(to_f32(query.v[1]), v1, sum));
    });
    add(product, dq);
  }

  MIXTAPE_DEVICE void add_key_gradients(float (&dk)[1][4][4]) {
    // Where k asks.
    float asks[1][4][4] = {}, product[1][4][4] = {};
    multiply_parts<kDeltaTensorDim>(Natural{m.dr, row}, Dense{m.state, col}, asks);
    multiply_parts<kDeltaChunk>(Square{m.da, row}, Dense{m.keys, col}, product);
    each_pair(asks, [&](int r, int, float& v0, float& v1) {
      const float factor = -f.start[row + r] * f.beta[row + r];
      v0 *= factor, v1 *= factor;
    });
    each_pair_of_half(product, [&](int half, int r, int c, float& v0, float& v1) {
      const Pack<bf16, 2> key = pair_at<kDeltaTensorDim>(m.keys, row + r, col + c);
      float& sum = sums.dbeta[half];
      sum = fma_f32(to_f32(key.v[0]), v0, fma_f32(to_f32(key.v[1]), v1, sum));
      v0 *= f.beta[row + r], v1 *= f.beta[row + r];
    });
    add(product, asks);
    add_products_with_keys(asks, sums.dg, 1.0f);
    add(asks, dk);
    // Where it is asked.
    clear(product);
    multiply_parts<kDeltaTensorDim>(Natural{m.u, row}, Dense{m.dstate, col}, product);
    float last[2] = {};
    each_pair(product,
              [&](int r, int, float& v0, float& v1) { v0 *= f.to_end[row + r], v1 *= f.to_end[row + r]; });
    add_products_with_keys(product, last, 1.0f);
    sums.last += last[0] + last[1];
    multiply_parts<kDeltaChunk>(DenseSquare{m.dweights, row}, Dense{m.queries, col}, product);
    multiply_parts<kDeltaChunk>(DenseSquare{m.scaled_da, row}, Dense{m.keys, col}, product);
    add_products_with_keys(product, sums.dg, -1.0f);
    add(product, dk);
  }

  // dg[t] is the sum of the rows from t to the chunk's end, and of what the whole chunk's decay is multiplied with.
  MIXTAPE_DEVICE void put_gates(Global<float> dg, Global<float> dbeta) const {
    float product = 0.0f;
    MIXTAPE_UNROLL
    for (int i = flat_thread(); i < kHeadTile / 8; i += kKeysThreads) {
      const Pack<bf16, 8> s = load_pack<8>(m.state + i * 8), ds = load_pack<8>(m.dstate + i * 8);
      MIXTAPE_UNROLL
      for (int e = 0; e < 8; ++e) product = fma_f32(to_f32(s.v[e]), to_f32(ds.v[e]), product);
    }
    put_lane_sums(sums.dg, row, col / 32, f.dg);
    put_lane_sums(sums.dbeta, row, col / 32, f.dbeta);
    const float last = block_sum(fma_f32(f.start[kDeltaChunk - 1], product, sums.last), f.scratch);
    const int t = flat_thread();
    const auto of_all = [&](Shared<float> parts) {
      return (parts[t] + parts[kDeltaChunk + t]) + (parts[2 * kDeltaChunk + t] + parts[3 * kDeltaChunk + t]);
    };
    if (t < kDeltaChunk) f.rows[t] = of_all(f.dg);
    barrier();
    if (t >= place.count) return;
    float sum = last;
    MIXTAPE_UNROLL_4
    for (int i = kDeltaChunk - 1; i >= t; --i) sum += f.rows[i];
    const std::int64_t at = place.gates(p) + t * p.value_heads;
    const float of_beta = of_all(f.dbeta);
    if ((p.wanted & p.dg) != 0) dg[at] = (p.accumulate & p.dg) != 0 ? dg[at] + sum : sum;
    if ((p.wanted & p.dbeta) != 0) dbeta[at] = (p.accumulate & p.dbeta) != 0 ? dbeta[at] + of_beta : of_beta;
  }

 private:
  MIXTAPE_DEVICE static void add(const float (&from)[1][4][4], float (&to)[1][4][4]) {
    MIXTAPE_UNROLL
    for (int n = 0; n < 4; ++n) {
      MIXTAPE_UNROLL
      for (int i = 0; i < 4; ++i) to[0][n][i] += from[0][n][i];
    }
  }
  MIXTAPE_DEVICE void add_products_with_keys(float (&with)[1][4][4], float (&to)[2], float sign) const {
    each_pair_of_half(with, [&](int half, int r, int c, float& v0, float& v1) {
      const Pack<bf16, 2> key = pair_at<kDeltaTensorDim>(m.keys, row + r, col + c);
      float& sum = to[half];
      sum = fma_f32(sign * to_f32(key.v[0]), v0, fma_f32(sign * to_f32(key.v[1]), v1, sum));
    });
  }
};

MIXTAPE_DEVICE void delta_backward_keys_tensor(const GatedDeltaRuleParams& p, const DeltaKeysReads& in,
                                               Global<bf16> dq, Global<bf16> dk, Global<float> dg,
                                               Global<float> dbeta, Shared<bf16> memory,
                                               Shared<float> floats) {
  const DeltaKeysMemory m(memory);
  const DeltaKeysFloats f(floats);
  const std::int64_t of_all = block_x() / p.chunks(), first_head = of_all % p.key_heads * p.group();
  const int row = warp() / 4 * 16, col = warp() % 4 * 32;
  float of_q[1][4][4] = {}, of_k[1][4][4] = {};
  const auto place_of_head = [&](std::int64_t i) {
    return DeltaPlace(p, of_all / p.key_heads, first_head + i, block_x() % p.chunks());
  };
  copy_rows<kDeltaTensorDim, kDeltaChunk, kKeysThreads>(delta_keys(p, place_of_head(0), in.k), m.keys);
  copy_rows<kDeltaTensorDim, kDeltaChunk, kKeysThreads>(delta_keys(p, place_of_head(0), in.q), m.queries);
  MIXTAPE_ROLLED
  for (std::int64_t i = 0; i < p.group(); ++i) {
    const DeltaPlace place = place_of_head(i);
    DeltaKeysHead head{p, place, m, f, row, col, {}};
    head.load(in);
    wait_copies<1>();
    barrier();
    head.make_values(in.v);
    barrier();
    head.make_squares();
    wait_copies<0>();
    barrier();
    head.add_query_gradients(of_q);
    head.add_key_gradients(of_k);
    head.put_gates(dg, dbeta);
    barrier();
  }
  const DeltaPlace place = place_of_head(0);
  if ((p.wanted & p.dq) != 0) store_key_gradients(p, place, row, col, of_q, (p.accumulate & p.dq) != 0, dq);
  if ((p.wanted & p.dk) != 0) store_key_gradients(p, place, row, col, of_k, (p.accumulate & p.dk) != 0, dk);
}

MIXTAPE_KERNEL(gated_delta_rule_backward_keys_tensor, 512, GatedDeltaRuleParams p, Global<const bf16> q,
               Global<const bf16> k, Global<const bf16> v, Global<const float> beta,
               Global<const float> states, Global<const bf16> dy, Global<const bf16> solved,
               Global<const float> decays, Global<const bf16> dr, Global<const bf16> dstates, Global<bf16> dq,
               Global<bf16> dk, Global<float> dg, Global<float> dbeta) {
  await_earlier();
  MIXTAPE_SHARED_DYNAMIC(bf16, memory);
  MIXTAPE_SHARED(float, floats, DeltaKeysFloats::kCount);
  delta_backward_keys_tensor(p, {q, k, v, beta, states, dy, solved, decays, dr, dstates}, dq, dk, dg, dbeta,
                             memory, floats);
}

}  // namespace mixtape
