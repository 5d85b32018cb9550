// bf16 on matrix units, for up to 128 keys in multiples of 8; the same two kernels as gated_delta_rule_gpu.cu has.
// What goes from chunk to chunk is kept in f32 and multiplied in two bf16 parts.
#include "mixtape/ops/gated_delta_rule/gated_delta_rule_tensor_gpu.h"

namespace mixtape {

// (I + a)^-1 of a strictly lower triangular [64,64], all but its upper right quarter, 0: the blocks of 16 on the
// diagonal row by row, then of two blocks beside each other the lower left one, -t22 (a21 t11), for blocks of 16 and of 32.
constexpr int kInverseStep = kDeltaChunk + 4;  // floats of a row
MIXTAPE_DEVICE void invert_blocks(Shared<const float> a, Shared<float> t) {
  const int thread = flat_thread();
  if (thread >= kDeltaChunk) return;
  const int corner = thread / 16 * 16 * (kInverseStep + 1), col = thread % 16;
  float x[16];
  MIXTAPE_UNROLL
  for (int r = 0; r < 16; ++r) {
    float sum = r == col ? 1.0f : 0.0f;
    MIXTAPE_UNROLL
    for (int j = 0; j < r; ++j) sum = fma_f32(-a[corner + r * kInverseStep + j], x[j], sum);
    x[r] = sum;
    t[corner + r * kInverseStep + col] = sum;
  }
}
MIXTAPE_DEVICE void merge_blocks_16(Shared<const float> a, Shared<float> t, Shared<float> product) {
  const int r = flat_thread() / 16, col = flat_thread() % 16;
  for (int pair = 0; pair < 2; ++pair) {
    const int upper = pair * 32 * (kInverseStep + 1), lower = upper + 16 * kInverseStep;
    float sum = 0.0f;
    MIXTAPE_UNROLL
    for (int j = 0; j < 16; ++j)
      sum = fma_f32(a[lower + r * kInverseStep + j], t[upper + j * kInverseStep + col], sum);
    product[pair * 256 + flat_thread()] = sum;
    t[upper + r * kInverseStep + 16 + col] = 0.0f;
  }
  barrier();
  for (int pair = 0; pair < 2; ++pair) {
    const int lower = pair * 32 * (kInverseStep + 1) + 16 * kInverseStep;
    float sum = 0.0f;
    MIXTAPE_UNROLL
    for (int j = 0; j < 16; ++j)
      sum = fma_f32(-t[lower + r * kInverseStep + 16 + j], product[pair * 256 + j * 16 + col], sum);
    t[lower + r * kInverseStep + col] = sum;
  }
}
MIXTAPE_DEVICE void merge_blocks_32(Shared<const float> a, Shared<float> t, Shared<float> product) {
  const int r = flat_thread() / 8, col = flat_thread() % 8 * 4, lower = (32 + r) * kInverseStep;
  Pack<float, 4> sum = {};
  MIXTAPE_UNROLL_4
  for (int j = 0; j < 32; ++j) {
    const Pack<float, 4> row = load_pack<4>(t + (j * kInverseStep + col));
    MIXTAPE_UNROLL
    for (int i = 0; i < 4; ++i) sum.v[i] = fma_f32(a[lower + j], row.v[i], sum.v[i]);
  }
  store_pack(product + (r * 32 + col), sum);
  barrier();
  sum = {};
  MIXTAPE_UNROLL_4
  for (int j = 0; j < 32; ++j) {
    const Pack<float, 4> row = load_pack<4>(product + (j * 32 + col));
    MIXTAPE_UNROLL
    for (int i = 0; i < 4; ++i) sum.v[i] = fma_f32(-t[lower + 32 + j], row.v[i], sum.v[i]);
  }
  store_pack(t + (lower + col), sum);
}

// t in two parts.
MIXTAPE_DEVICE void store_solved(Shared<const float> t, Global<bf16> solved) {
  for (int i = flat_thread(); i < kDeltaSquare / 8; i += 256) {
    const int row = i / 8, col = i % 8 * 8;
    const bool is_lower = col < 32 || row >= 32;
    Pack<bf16, 8> high, low;
    MIXTAPE_UNROLL
    for (int e = 0; e < 8; ++e) {
      const float v = is_lower ? static_cast<float>(t[row * kInverseStep + col + e]) : 0.0f;
      high.v[e] = from_f32<bf16>(v);
      low.v[e] = low_part(v, high.v[e]);
    }
    store_pack(solved + i * 8, high);
    store_pack(solved + (kDeltaSquare + i * 8), low);
  }
}

MIXTAPE_DEVICE void delta_chunks_tensor(const GatedDeltaRuleParams& p, Global<const bf16> q,
                                        Global<const bf16> k, Global<const float> g,
                                        Global<const float> betas, Global<bf16> solved, Global<bf16> weights,
                                        Global<float> decays, Shared<bf16> memory, Shared<float> a,
                                        Shared<float> t, Shared<float> product, Shared<float> gates) {
  const std::int64_t index = block_x();
  const std::int64_t of_all = index / p.chunks();
  const DeltaPlace place(p, of_all / p.value_heads, of_all % p.value_heads, index % p.chunks());
  const Shared<bf16> keys = memory, queries = memory + kDeltaKeyTile;
  copy_rows<kDeltaTensorDim, kDeltaChunk, 256>(delta_keys(p, place, k), keys);
  copy_rows<kDeltaTensorDim, kDeltaChunk, 256>(delta_keys(p, place, q), queries);
  commit_copies();
  const Shared<float> high = gates, low = gates + kDeltaChunk, beta = gates + 2 * kDeltaChunk;
  load_gates(p, place, g, betas, high, low, beta);
  wait_copies<0>();
  barrier();
  const int row = warp() / 2 * 16, col = warp() % 2 * 32;
  float of_keys[1][4][4] = {}, of_queries[1][4][4] = {};
  const Global<bf16> own_weights = weights + index * 2 * kDeltaSquare;
  if (col <= row + 15) {  // else above the diagonal
    const DeltaOperand<kDeltaTensorDim, false> columns{keys, col};
    multiply_parts<kDeltaTensorDim>(DeltaOperand<kDeltaTensorDim, false>{keys, row}, columns, of_keys);
    multiply_parts<kDeltaTensorDim>(DeltaOperand<kDeltaTensorDim, false>{queries, row}, columns, of_queries);
  }
  MIXTAPE_UNROLL
  for (int n = 0; n < 4; ++n) {
    MIXTAPE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int i = row + half * 8 + lane() / 4, j = col + n * 8 + lane() % 4 * 2;
      float w[2];
      MIXTAPE_UNROLL
      for (int e = 0; e < 2; ++e) {
        const float decay = j + e <= i ? decay_between(high, low, i, j + e) : 0.0f;
        a[i * kInverseStep + j + e] = j + e < i ? of_keys[0][n][half * 2 + e] * beta[i] * decay : 0.0f;
        w[e] = j + e <= i ? of_queries[0][n][half * 2 + e] * p.scale * decay : 0.0f;
      }
      const Pack<bf16, 2> upper = rounded_pair(w[0], w[1]);
      store_pack(own_weights + (i * kDeltaChunk + j), upper);
      store_pack(own_weights + (kDeltaSquare + i * kDeltaChunk + j), low_pair(w[0], w[1], upper));
    }
  }
  store_decays(high, low, decays + index * kDeltaDecays);
  barrier();
  invert_blocks(a, t);
  barrier();
  merge_blocks_16(a, t, product);
  barrier();
  merge_blocks_32(a, t, product);
  barrier();
  store_solved(t, solved + index * 2 * kDeltaSquare);
}

MIXTAPE_KERNEL(gated_delta_rule_chunks_tensor, 256, GatedDeltaRuleParams p, Global<const bf16> q,
               Global<const bf16> k, Global<const float> g, Global<const float> beta, Global<bf16> solved,
               Global<bf16> weights, Global<float> decays) {
  await_earlier();
  MIXTAPE_SHARED_DYNAMIC(bf16, memory);
  MIXTAPE_SHARED(float, a, kDeltaChunk* kInverseStep);
  MIXTAPE_SHARED(float, t, kDeltaChunk* kInverseStep);
  MIXTAPE_SHARED(float, product, 1024);
  MIXTAPE_SHARED(float, gates, 3 * kDeltaChunk);
  delta_chunks_tensor(p, q, k, g, beta, solved, weights, decays, memory, a, t, product, gates);
}

// The block's shared memory. Keys and (I + A)^-1 take turns in two tiles: each makes room for the other's next one.
constexpr int kValueStep = kDeltaSlice + 8;  // of a row of v: neighbours in different banks
struct DeltaForwardMemory {
  Shared<bf16> state, turns, queries, weights, z, u, u_to_end, values;
  MIXTAPE_DEVICE explicit DeltaForwardMemory(Shared<bf16> memory) {
    state = memory;
    turns = state + 2 * kDeltaStateTile;
    queries = turns + 2 * kDeltaKeyTile;
    weights = queries + kDeltaKeyTile;
    z = weights + 2 * kDeltaSquare;
    u = z + 2 * kDeltaSliceTile;
    u_to_end = u + 2 * kDeltaSliceTile;
    values = u_to_end + 2 * kDeltaSliceTile;
  }
};

// 16 values of 16 positions of y from a warp's product, by `stage`, [16][16].
MIXTAPE_DEVICE void store_outputs(const GatedDeltaRuleParams& p, const DeltaPlace& place,
                                  const DeltaColumns& c, int first_value, int first, float (&sums)[1][2][4],
                                  Shared<bf16> stage, Global<bf16> y) {
  each_pair(sums, [&](int row, int col, float& v0, float& v1) {
    stage[col * 16 + row] = from_f32<bf16>(v0);
    stage[(col + 1) * 16 + row] = from_f32<bf16>(v1);
  });
  lane_barrier();
  const int t = first + lane() / 2, v = first_value + lane() % 2 * 8;
  if (t < place.count && v < c.cols)
    store_pack(y + (place.values(p) + t * p.value_heads * p.value_dim + c.first + v),
               load_pack<8>(stage + (lane() / 2 * 16 + lane() % 2 * 8)));
}

MIXTAPE_DEVICE void delta_forward_tensor(const GatedDeltaRuleParams& p, Global<const bf16> q,
                                         Global<const bf16> k, Global<const bf16> v,
                                         Global<const float> betas, Global<const bf16> solved,
                                         Global<const bf16> weights, Global<const float> decays,
                                         Global<const float> initial, Global<bf16> y,
                                         Global<float> final_state, Global<float> states, Shared<bf16> memory,
                                         Shared<float> all_factors) {
  const DeltaColumns columns(p);
  const DeltaForwardMemory m(memory);
  const int chunks = static_cast<int>(p.chunks());
  const auto place_at = [&](int chunk) { return DeltaPlace(p, columns.b, columns.head, chunk); };
  const auto copy_queries_and_values = [&](const DeltaPlace& place) {
    copy_rows<kDeltaTensorDim, kDeltaChunk, 256>(delta_keys(p, place, q), m.queries);
    const int t = flat_thread() / 4, at = flat_thread() % 4 * 8;
    const bool is_valid = t < place.count && at < columns.cols;
    const std::int64_t from = place.values(p) + t * p.value_heads * p.value_dim + columns.first + at;
    copy_async(m.values, t * kValueStep + at, v + (is_valid ? from : 0), is_valid);
  };
  const auto copy_square = [&](const DeltaPlace& place, Global<const bf16> from, Shared<bf16> to) {
    copy_rows<kDeltaChunk, 2 * kDeltaChunk, 256>(delta_square(p, place, from, 2 * kDeltaChunk), to);
    commit_copies();
  };
  const auto copy_keys = [&](const DeltaPlace& place, Shared<bf16> to) {
    copy_rows<kDeltaTensorDim, kDeltaChunk, 256>(delta_keys(p, place, k), to);
  };
  // A warp's part: of z, u and y 16 values and 16 positions, of the state 16 keys.
  const int quarter = warp() % 4 * 16, half = warp() / 4 * 16, key = warp() * 16;
  float s[2][2][4];
  DeltaFactors factors;
  if (chunks > 0) {
    copy_queries_and_values(place_at(0));
    copy_keys(place_at(0), m.turns);
    commit_copies();
    copy_square(place_at(0), solved, m.turns + kDeltaKeyTile);
    copy_square(place_at(0), weights, m.weights);
    factors.load(p, place_at(0), decays, betas);
    factors.put(all_factors);
  }
  load_state(p, columns, key, p.has_initial != 0, initial, s);
  put_product<kDeltaTensorDim, kDeltaStateTile>(s, m.state, 0, key);
  wait_copies<2>();
  barrier();
  MIXTAPE_ROLLED
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const DeltaPlace place = place_at(chunk), next = place_at(chunk + 1);
    const bool goes_on = chunk + 1 < chunks;
    const Shared<bf16> keys = m.turns + chunk % 2 * kDeltaKeyTile,
                       inverse = m.turns + (chunk + 1) % 2 * kDeltaKeyTile;
    const Shared<float> start = all_factors + chunk % 2 * 3 * kDeltaChunk, to_end = start + kDeltaChunk,
                        beta = to_end + kDeltaChunk;
    float z[1][2][4] = {}, out[1][2][4] = {};
    using Positions = DeltaOperand<kDeltaTensorDim, false>;
    multiply_parts<kDeltaTensorDim>(DeltaOperand<kDeltaTensorDim, false, kDeltaStateTile>{m.state, half},
                                    Positions{keys, quarter}, Positions{m.queries, quarter}, z, out);
    each_pair(z, [&](int row, int col, float& v0, float& v1) {
      const int t = quarter + col, at = t * kValueStep + half + row;
      v0 = beta[t] * fma_f32(-start[t], v0, to_f32(m.values[at]));
      v1 = beta[t + 1] * fma_f32(-start[t + 1], v1, to_f32(m.values[at + kValueStep]));
    });
    put_product<kDeltaChunk, kDeltaSliceTile>(z, m.z, half, quarter);
    each_pair(out, [&](int, int col, float& v0, float& v1) {
      v0 *= start[quarter + col] * p.scale, v1 *= start[quarter + col + 1] * p.scale;
    });
    wait_copies<1>();
    barrier();
    if (goes_on) {
      copy_queries_and_values(next);
      factors.load(p, next, decays, betas);
    }
    commit_copies();
    float u[1][2][4] = {};
    multiply_parts<kDeltaChunk>(DeltaOperand<kDeltaChunk, false, kDeltaSliceTile>{m.z, half},
                                DeltaOperand<kDeltaChunk, false, kDeltaSquare>{inverse, quarter}, u);
    put_product<kDeltaChunk, kDeltaSliceTile>(u, m.u, half, quarter);
    each_pair(u, [&](int, int col, float& v0, float& v1) {
      v0 *= to_end[quarter + col], v1 *= to_end[quarter + col + 1];
    });
    put_product<kDeltaChunk, kDeltaSliceTile>(u, m.u_to_end, half, quarter);
    wait_copies<1>();
    barrier();
    if (goes_on) copy_keys(next, inverse);
    commit_copies();
    if (p.keeps_states != 0) store_state(p, columns, key, columns.at(p, place), false, states, s);
    const float whole = start[kDeltaChunk - 1];
    each_pair(s, [&](int, int, float& v0, float& v1) { v0 *= whole, v1 *= whole; });
    multiply_parts<kDeltaChunk>(DeltaOperand<kDeltaChunk, false, kDeltaSliceTile>{m.u_to_end, 0},
                                DeltaOperand<kDeltaTensorDim, true>{keys, key}, s);
    put_product<kDeltaTensorDim, kDeltaStateTile>(s, m.state, 0, key);
    multiply_parts<kDeltaChunk>(DeltaOperand<kDeltaChunk, false, kDeltaSliceTile>{m.u, half},
                                DeltaOperand<kDeltaChunk, false, kDeltaSquare>{m.weights, quarter}, out);
    store_outputs(p, place, columns, half, quarter, out, m.z + warp() * 256, y);
    if (goes_on) factors.put(all_factors + (chunk + 1) % 2 * 3 * kDeltaChunk);
    wait_copies<0>();
    barrier();
    if (!goes_on) break;
    copy_square(next, solved, keys);
    copy_square(next, weights, m.weights);
  }
  store_state(p, columns, key, columns.own(p), false, final_state, s);
}

MIXTAPE_KERNEL_BLOCKS(gated_delta_rule_forward_tensor, 256, 2, GatedDeltaRuleParams p, Global<const bf16> q,
                      Global<const bf16> k, Global<const bf16> v, Global<const float> beta,
                      Global<const bf16> solved, Global<const bf16> weights, Global<const float> decays,
                      Global<const float> initial, Global<bf16> y, Global<float> final_state,
                      Global<float> states) {
  await_earlier();
  MIXTAPE_SHARED_DYNAMIC(bf16, memory);
  MIXTAPE_SHARED(float, factors, 6 * kDeltaChunk);
  delta_forward_tensor(p, q, k, v, beta, solved, weights, decays, initial, y, final_state, states, memory,
                       factors);
}

}  // namespace mixtape
