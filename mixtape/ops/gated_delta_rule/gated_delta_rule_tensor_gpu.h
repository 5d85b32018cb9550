// What the kernels of gated_delta_rule for matrix units share: products of bf16 operands in shared memory, where
// f32 ones are there in two bf16 parts, v = high + low within 2^-16, and high high + high low + low high is their
// product; a head's values, 32 of them, as rows, positions or keys as columns.
#pragma once

#include "mixtape/backend/gpu/tensor.h"
#include "mixtape/ops/gated_delta_rule/gated_delta_rule_products_gpu.h"

namespace mixtape {

// Values of tiles: keys of a chunk, [64][64], a slice's [32][64] and state [32][128]. Parts lie one behind the other.
constexpr int kDeltaKeyTile = kDeltaChunk * kDeltaTensorDim;
constexpr int kDeltaSliceTile = kDeltaSlice * kDeltaChunk;
constexpr int kDeltaStateTile = kDeltaSlice * kDeltaTensorDim;

// Rows from `first` on of a tile[row][depth] or, where rows are dense, tile[depth][row]; the low parts lie Low values
// behind, 0: there are none.
template <int Width, bool DenseRows, int Low = 0>
struct DeltaOperand {
  static constexpr int kWidth = Width, kLow = Low;
  static constexpr bool kDense = DenseRows;
  Shared<bf16> tile;
  int first;
};

// 16 M rows of a, 16 of its depth.
template <int M, class A>
struct DeltaLeft {
  std::uint32_t high[M][4], low[M][4];
  MIXTAPE_DEVICE void load(const A& a, int place, int depth) {
    MIXTAPE_UNROLL
    for (int m = 0; m < M; ++m) {
      load_fragment<A::kWidth, A::kDense>(a.tile, place, a.first + m * 16, depth, high[m]);
      if constexpr (A::kLow > 0)
        load_fragment<A::kWidth, A::kDense>(a.tile + A::kLow, place, a.first + m * 16, depth, low[m]);
    }
  }
  // sums += of it and of 8 N2 rows of b.
  template <int N2, class B>
  MIXTAPE_DEVICE void multiply(const B& b, int place, int depth, float (&sums)[M][N2][4]) const {
    MIXTAPE_UNROLL
    for (int n = 0; n < N2; n += 2) {
      std::uint32_t right[4], right_low[4];
      load_fragment<B::kWidth, B::kDense>(b.tile, place, b.first + n * 8, depth, right);
      if constexpr (B::kLow > 0)
        load_fragment<B::kWidth, B::kDense>(b.tile + B::kLow, place, b.first + n * 8, depth, right_low);
      MIXTAPE_UNROLL
      for (int m = 0; m < M; ++m) {
        MIXTAPE_UNROLL
        for (int i = 0; i < 2; ++i) {
          float(&sum)[4] = sums[m][n + i];
          if constexpr (A::kLow > 0) multiply_add<bf16>(sum, low[m], right[2 * i], right[2 * i + 1]);
          if constexpr (B::kLow > 0) multiply_add<bf16>(sum, high[m], right_low[2 * i], right_low[2 * i + 1]);
          multiply_add<bf16>(sum, high[m], right[2 * i], right[2 * i + 1]);
        }
      }
    }
  }
};

template <class A>
MIXTAPE_DEVICE int place_of_left() {
  return left_place<A::kWidth, A::kDense>();
}
template <class B>
MIXTAPE_DEVICE int place_of_right() {
  return right_place<B::kWidth, B::kDense>();
}

// sums += a b^T: 16 M rows of a, 8 N2 of b.
template <int Depth, int M, int N2, class A, class B>
MIXTAPE_DEVICE void multiply_parts(const A& a, const B& b, float (&sums)[M][N2][4]) {
  const int place_a = place_of_left<A>(), place_b = place_of_right<B>();
  MIXTAPE_UNROLL
  for (int depth = 0; depth < Depth; depth += 16) {
    DeltaLeft<M, A> left;
    left.load(a, place_a, depth);
    left.multiply(b, place_b, depth, sums);
  }
}
// Of two operands alike with one a.
template <int Depth, int M, int N2, class A, class B>
MIXTAPE_DEVICE void multiply_parts(const A& a, const B& b0, const B& b1, float (&sums0)[M][N2][4],
                                   float (&sums1)[M][N2][4]) {
  const int place_a = place_of_left<A>(), place_b = place_of_right<B>();
  MIXTAPE_UNROLL
  for (int depth = 0; depth < Depth; depth += 16) {
    DeltaLeft<M, A> left;
    left.load(a, place_a, depth);
    left.multiply(b0, place_b, depth, sums0);
    left.multiply(b1, place_b, depth, sums1);
  }
}

// f(half, row, column, first value, second value) for each pair of neighbours that this lane holds of a product, in the
// upper and lower half of 16 rows.
template <int M, int N2, class F>
MIXTAPE_DEVICE void each_pair_of_half(float (&sums)[M][N2][4], const F& f) {
  MIXTAPE_UNROLL
  for (int m = 0; m < M; ++m) {
    MIXTAPE_UNROLL
    for (int n = 0; n < N2; ++n) {
      MIXTAPE_UNROLL
      for (int half = 0; half < 2; ++half) {
        f(half, m * 16 + half * 8 + lane() / 4, n * 8 + lane() % 4 * 2, sums[m][n][half * 2],
          sums[m][n][half * 2 + 1]);
      }
    }
  }
}
template <int M, int N2, class F>
MIXTAPE_DEVICE void each_pair(float (&sums)[M][N2][4], const F& f) {
  each_pair_of_half(sums, [&](int, int row, int col, float& v0, float& v1) { f(row, col, v0, v1); });
}

template <int M, int N2>
MIXTAPE_DEVICE void clear(float (&sums)[M][N2][4]) {
  MIXTAPE_UNROLL
  for (int m = 0; m < M; ++m) {
    MIXTAPE_UNROLL
    for (int n = 0; n < N2; ++n) {
      MIXTAPE_UNROLL
      for (int i = 0; i < 4; ++i) sums[m][n][i] = 0.0f;
    }
  }
}

template <int Width>
MIXTAPE_DEVICE int place_of(int row, int col) {
  return swizzled<Width>(row, col / 8) + col % 8;
}
MIXTAPE_DEVICE bf16 low_part(float v, bf16 high) { return from_f32<bf16>(v - to_f32(high)); }

// Two values as bf16, and what that leaves of them.
MIXTAPE_DEVICE Pack<bf16, 2> rounded_pair(float v0, float v1) {
  const std::uint32_t bits = pack_pair<bf16>(v0, v1);
  Pack<bf16, 2> pair;
  pair.v[0].bits = static_cast<std::uint16_t>(bits);
  pair.v[1].bits = static_cast<std::uint16_t>(bits >> 16);
  return pair;
}
MIXTAPE_DEVICE Pack<bf16, 2> low_pair(float v0, float v1, const Pack<bf16, 2>& high) {
  return rounded_pair(v0 - to_f32(high.v[0]), v1 - to_f32(high.v[1]));
}

// Where a lane's pair of a product lies in a tile whose row `row` and column `col`, multiples of 8, are the product's
// first ones: (place ^ col) + row * Width.
template <int Width>
MIXTAPE_DEVICE int pair_place() {
  return hidden(swizzled<Width>(lane() / 4, 0) + lane() % 4 * 2);
}
// Puts a product into a tile, rounded; or in two parts, the low ones Low values behind.
template <int Width, int Low = 0, int M, int N2>
MIXTAPE_DEVICE void put_product(const float (&v)[M][N2][4], Shared<bf16> tile, int row, int col) {
  const int place = pair_place<Width>();
  MIXTAPE_UNROLL
  for (int m = 0; m < M; ++m) {
    MIXTAPE_UNROLL
    for (int n = 0; n < N2; ++n) {
      MIXTAPE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int at = (place ^ (col + n * 8)) + (row + m * 16 + half * 8) * Width;
        const float v0 = v[m][n][half * 2], v1 = v[m][n][half * 2 + 1];
        const Pack<bf16, 2> high = rounded_pair(v0, v1);
        store_pack(tile + at, high);
        if constexpr (Low > 0) store_pack(tile + (at + Low), low_pair(v0, v1, high));
      }
    }
  }
}
template <int Width>
MIXTAPE_DEVICE Pack<bf16, 2> pair_at(Shared<bf16> tile, int row, int col) {
  return load_pack<2>(tile + place_of<Width>(row, col));
}

MIXTAPE_DEVICE TensorRows<bf16> delta_keys(const GatedDeltaRuleParams& p, const DeltaPlace& place,
                                           Global<const bf16> at) {
  return {at + place.keys(p), static_cast<int>(p.key_heads * p.key_dim), place.count,
          static_cast<int>(p.key_dim)};
}
MIXTAPE_DEVICE TensorRows<bf16> delta_values_of(const GatedDeltaRuleParams& p, const DeltaPlace& place,
                                                Global<const bf16> at) {
  return {at + place.values(p), static_cast<int>(p.value_heads * p.value_dim), place.count,
          static_cast<int>(p.value_dim)};
}
// `count` rows of a chunk's [64,64], those of the low parts after those of the high ones.
MIXTAPE_DEVICE TensorRows<bf16> delta_square(const GatedDeltaRuleParams& p, const DeltaPlace& place,
                                             Global<const bf16> at, int count) {
  return {at + place.index(p) * 2 * kDeltaSquare, kDeltaChunk, count, kDeltaChunk};
}

// The slice of a head's state that a block goes from chunk to chunk with.
struct DeltaColumns {
  std::int64_t b, head;
  int first, cols;  // of the values

  MIXTAPE_DEVICE explicit DeltaColumns(const GatedDeltaRuleParams& p) {
    const std::int64_t slices = delta_slices(p.value_dim), of_all = block_x() / slices;
    b = of_all / p.value_heads;
    head = of_all % p.value_heads;
    first = static_cast<int>(block_x() % slices) * kDeltaSlice;
    cols = p.value_dim - first < kDeltaSlice ? static_cast<int>(p.value_dim) - first : kDeltaSlice;
  }
  MIXTAPE_DEVICE std::int64_t own(const GatedDeltaRuleParams& p) const {
    return (b * p.value_heads + head) * p.state_size() + first * p.key_dim;
  }
  MIXTAPE_DEVICE std::int64_t at(const GatedDeltaRuleParams& p, const DeltaPlace& place) const {
    return place.index(p) * p.state_size() + first * p.key_dim;
  }
};

// A chunk's factors by position, [3][64]: the decays from the start and to the end, and beta. They are asked for long
// before they are put down.
struct DeltaFactors {
  float start = 0.0f, to_end = 0.0f, beta = 0.0f;

  MIXTAPE_DEVICE void load(const GatedDeltaRuleParams& p, const DeltaPlace& place, Global<const float> decays,
                           Global<const float> betas) {
    const int t = flat_thread();
    if (t >= kDeltaChunk) return;
    const Global<const float> own = decays + place.index(p) * kDeltaDecays;
    start = own[t];
    to_end = own[kDeltaChunk + t];
    beta = t < place.count ? static_cast<float>(betas[place.gates(p) + t * p.value_heads]) : 0.0f;
  }
  MIXTAPE_DEVICE void put(Shared<float> to) const {
    const int t = flat_thread();
    if (t >= kDeltaChunk) return;
    to[t] = start;
    to[kDeltaChunk + t] = to_end;
    to[2 * kDeltaChunk + t] = beta;
  }
};

// Lanes' parts of a state in f32, rows from `first_key` on as keys: to and from memory.
template <int N2>
MIXTAPE_DEVICE void load_state(const GatedDeltaRuleParams& p, const DeltaColumns& c, int first_key,
                               bool is_given, Global<const float> from, float (&s)[2][N2][4]) {
  clear(s);
  if (!is_given) return;
  each_pair(s, [&](int row, int col, float& v0, float& v1) {
    if (row >= c.cols || first_key + col >= p.key_dim) return;
    const Pack<float, 2> pair = load_pack<2>(from + (c.own(p) + row * p.key_dim + first_key + col));
    v0 = pair.v[0], v1 = pair.v[1];
  });
}
template <int N2>
MIXTAPE_DEVICE void store_state(const GatedDeltaRuleParams& p, const DeltaColumns& c, int first_key,
                                std::int64_t at, bool accumulate, Global<float> to, float (&s)[2][N2][4]) {
  each_pair(s, [&](int row, int col, float& v0, float& v1) {
    if (row >= c.cols || first_key + col >= p.key_dim) return;
    const Global<float> out = to + (at + row * p.key_dim + first_key + col);
    Pack<float, 2> pair = {{v0, v1}};
    if (accumulate) {
      const Pack<float, 2> old = load_pack<2>(out);
      pair.v[0] += old.v[0], pair.v[1] += old.v[1];
    }
    store_pack(out, pair);
  });
}

}  // namespace mixtape
