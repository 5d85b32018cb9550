// What the kernels of gated_delta_rule share: products of matrices in f32, of which both operands pass through shared
// memory, 64 rows by 16 N columns of {16, 16} threads, 4 x N a thread; chunks; and a head's state in shared memory.
#pragma once

#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/gated_delta_rule/gated_delta_rule_gpu_params.h"

namespace mixtape {

// Matrices that products read, 0 outside.
template <class P>
struct DeltaMatrix {
  static constexpr bool kRowsAreDense = true;
  P at;
  std::int64_t step;
  int rows, cols;

  MIXTAPE_DEVICE float operator()(int r, int c) const {
    return r < rows && c < cols ? to_f32(at[r * step + c]) : 0.0f;
  }
};
template <class P>
MIXTAPE_DEVICE DeltaMatrix<P> delta_matrix(P at, std::int64_t step, int rows, int cols) {
  return DeltaMatrix<P>{at, step, rows, cols};
}
// Row r times factors[r].
template <class M>
struct DeltaScaled {
  static constexpr bool kRowsAreDense = M::kRowsAreDense;
  M m;
  Shared<const float> factors;
  MIXTAPE_DEVICE float operator()(int r, int c) const { return m(r, c) * static_cast<float>(factors[r]); }
};
template <class M>
MIXTAPE_DEVICE DeltaScaled<M> scaled(M m, Shared<const float> factors) {
  return DeltaScaled<M>{m, factors};
}
template <class M>
struct DeltaTurned {
  static constexpr bool kRowsAreDense = !M::kRowsAreDense;
  M m;
  MIXTAPE_DEVICE float operator()(int r, int c) const { return m(c, r); }
};
template <class M>
MIXTAPE_DEVICE DeltaTurned<M> turned(M m) {
  return DeltaTurned<M>{m};
}

// This thread's part of a product.
template <int N>
struct DeltaTile {
  float v[4][N];

  MIXTAPE_DEVICE void clear() {
    MIXTAPE_UNROLL
    for (int r = 0; r < 4; ++r) {
      MIXTAPE_UNROLL
      for (int c = 0; c < N; ++c) v[r][c] = 0.0f;
    }
  }
  MIXTAPE_DEVICE static int row(int r) { return thread_y() * 4 + r; }
  MIXTAPE_DEVICE static int col(int c) { return thread_x() * N + c; }
  MIXTAPE_DEVICE void scale_rows(Shared<const float> factors) {
    MIXTAPE_UNROLL
    for (int r = 0; r < 4; ++r) {
      MIXTAPE_UNROLL
      for (int c = 0; c < N; ++c) v[r][c] *= factors[row(r)];
    }
  }
  // += a b over `depth`. What threads of the block wrote before is seen.
  template <class A, class B>
  MIXTAPE_DEVICE void add_product(int depth, const A& a, const B& b, Shared<float> stage) {
    const Shared<float> left = stage, right = stage + kDeltaDepth * kDeltaStride;
    MIXTAPE_ROLLED
    for (int first = 0; first < depth; first += kDeltaDepth) {
      barrier();
      MIXTAPE_UNROLL
      for (int i = flat_thread(); i < kDeltaDepth * kDeltaChunk; i += 256) {
        const int d = A::kRowsAreDense ? i % kDeltaDepth : i / kDeltaChunk;
        const int r = A::kRowsAreDense ? i / kDeltaDepth : i % kDeltaChunk;
        left[d * kDeltaStride + r] = a(r, first + d);
      }
      MIXTAPE_UNROLL
      for (int i = flat_thread(); i < kDeltaDepth * 16 * N; i += 256) {
        const int d = B::kRowsAreDense ? i / (16 * N) : i % kDeltaDepth;
        const int c = B::kRowsAreDense ? i % (16 * N) : i / kDeltaDepth;
        right[d * kDeltaStride + c] = b(first + d, c);
      }
      barrier();
      MIXTAPE_UNROLL
      for (int d = 0; d < kDeltaDepth; ++d) {
        const Pack<float, 4> x = load_pack<4>(left + (d * kDeltaStride + row(0)));
        const Pack<float, N> y = load_pack<N>(right + (d * kDeltaStride + col(0)));
        MIXTAPE_UNROLL
        for (int r = 0; r < 4; ++r) {
          MIXTAPE_UNROLL
          for (int c = 0; c < N; ++c) v[r][c] = fma_f32(x.v[r], y.v[c], v[r][c]);
        }
      }
    }
  }
};

// A chunk of a head.
struct DeltaPlace {
  std::int64_t b, head, chunk, begin;
  int count;  // positions

  MIXTAPE_DEVICE DeltaPlace(const GatedDeltaRuleParams& p, std::int64_t batch, std::int64_t of_head,
                            std::int64_t of_chunk)
      : b(batch), head(of_head), chunk(of_chunk), begin(of_chunk * kDeltaChunk) {
    count = static_cast<int>(p.length - begin < kDeltaChunk ? p.length - begin : kDeltaChunk);
  }
  // Where things begin.
  MIXTAPE_DEVICE std::int64_t keys(const GatedDeltaRuleParams& p) const {
    return ((b * p.length + begin) * p.key_heads + head / p.group()) * p.key_dim;
  }
  MIXTAPE_DEVICE std::int64_t gates(const GatedDeltaRuleParams& p) const {
    return (b * p.length + begin) * p.value_heads + head;
  }
  MIXTAPE_DEVICE std::int64_t values(const GatedDeltaRuleParams& p) const { return gates(p) * p.value_dim; }
  MIXTAPE_DEVICE std::int64_t index(const GatedDeltaRuleParams& p) const {  // among the chunks of all heads
    return (b * p.value_heads + head) * p.chunks() + chunk;
  }
};

// The rows of q or k, and of v and its like, from column `col` on.
template <class T>
MIXTAPE_DEVICE DeltaMatrix<Global<const T>> key_rows(const GatedDeltaRuleParams& p, const DeltaPlace& place,
                                                     Global<const T> at, int col = 0) {
  return delta_matrix<Global<const T>>(at + (place.keys(p) + col), p.key_heads * p.key_dim, place.count,
                                       static_cast<int>(p.key_dim) - col);
}
template <class T>
MIXTAPE_DEVICE DeltaMatrix<Global<const T>> value_rows(const GatedDeltaRuleParams& p, const DeltaPlace& place,
                                                       Global<const T> at, int col = 0) {
  return delta_matrix<Global<const T>>(at + (place.values(p) + col), p.value_heads * p.value_dim, place.count,
                                       static_cast<int>(p.value_dim) - col);
}
MIXTAPE_DEVICE DeltaMatrix<Global<const float>> square(Global<const float> at, const GatedDeltaRuleParams& p,
                                                       const DeltaPlace& place) {
  return delta_matrix<Global<const float>>(at + place.index(p) * kDeltaSquare, kDeltaChunk, kDeltaChunk,
                                           kDeltaChunk);
}

// D[t,j] from sums of logarithms in two floats.
MIXTAPE_DEVICE float decay_between(Shared<const float> high, Shared<const float> low, int t, int j) {
  return exp_f32((high[t] - high[j]) + (low[t] - low[j]));
}

// A sum in two floats, and of two of them.
struct DeltaSum {
  float high, low;
};
MIXTAPE_DEVICE DeltaSum sum_of(const DeltaSum& a, const DeltaSum& b) {
  const float high = a.high + b.high, added = high - a.high;
  return {high, (a.low + b.low) + ((a.high - (high - added)) + (b.high - added))};
}

// The running sums of g, 0 beyond the chunk's positions, and beta. Two positions a lane of the first warp, then as a
// tree over the lanes.
MIXTAPE_DEVICE void load_gates(const GatedDeltaRuleParams& p, const DeltaPlace& place, Global<const float> g,
                               Global<const float> betas, Shared<float> high, Shared<float> low,
                               Shared<float> beta) {
  const int t = flat_thread();
  if (t < kDeltaChunk) {
    const std::int64_t at = place.gates(p) + t * p.value_heads;
    high[t] = t < place.count ? static_cast<float>(g[at]) : 0.0f;
    beta[t] = t < place.count ? static_cast<float>(betas[at]) : 0.0f;
  }
  barrier();
  if (warp() != 0) return;
  const float first = high[2 * t], second = high[2 * t + 1];
  DeltaSum sum = sum_of({first, 0.0f}, {second, 0.0f});
  MIXTAPE_UNROLL
  for (int step = 1; step < kLanes; step *= 2) {
    const int from = t >= step ? t - step : t;
    const DeltaSum before = {lane_shuffle(sum.high, from), lane_shuffle(sum.low, from)};
    if (t >= step) sum = sum_of(before, sum);
  }
  const DeltaSum before_second = sum_of(sum, {-second, 0.0f});
  high[2 * t] = before_second.high;
  low[2 * t] = before_second.low;
  high[2 * t + 1] = sum.high;
  low[2 * t + 1] = sum.low;
}

// A chunk's decays, kDeltaDecays floats, from the running sums.
MIXTAPE_DEVICE void store_decays(Shared<const float> high, Shared<const float> low, Global<float> own) {
  const int t = flat_thread();
  if (t >= kDeltaChunk) return;
  own[t] = exp_f32(high[t] + low[t]);
  own[kDeltaChunk + t] = decay_between(high, low, kDeltaChunk - 1, t);
  own[2 * kDeltaChunk + t] = static_cast<float>(high[t]);
  own[3 * kDeltaChunk + t] = static_cast<float>(low[t]);
}

// The shared memory of a block that goes from chunk to chunk with its slice of a head's state.
struct DeltaSlice {
  std::int64_t b, head;
  int first, cols;  // of the values
  Shared<float> stage, x, y, factors, state;

  MIXTAPE_DEVICE DeltaSlice(const GatedDeltaRuleParams& p, Shared<float> shared) {
    const std::int64_t slices = delta_slices(p.value_dim), of_all = block_x() / slices;
    b = of_all / p.value_heads;
    head = of_all % p.value_heads;
    first = static_cast<int>(block_x() % slices) * kDeltaSlice;
    cols = p.value_dim - first < kDeltaSlice ? static_cast<int>(p.value_dim) - first : kDeltaSlice;
    stage = shared;
    x = stage + kDeltaStage;
    y = x + kDeltaChunk * kDeltaSlice;
    factors = y + kDeltaChunk * kDeltaSlice;
    state = factors + 4 * kDeltaChunk;
  }
  // Where the slice begins in states [B,Hv,Dv,Dk], of chunks too.
  MIXTAPE_DEVICE std::int64_t at(const GatedDeltaRuleParams& p, std::int64_t index) const {
    return index * p.state_size() + first * p.key_dim;
  }
  MIXTAPE_DEVICE std::int64_t own(const GatedDeltaRuleParams& p) const {
    return at(p, b * p.value_heads + head);
  }
  MIXTAPE_DEVICE int size(const GatedDeltaRuleParams& p) const { return cols * static_cast<int>(p.key_dim); }

  // The state from `from`, or 0; rows beyond the values are 0.
  MIXTAPE_DEVICE void load(const GatedDeltaRuleParams& p, bool is_given, Global<const float> from) const {
    for (int i = flat_thread(); i < kDeltaSlice * static_cast<int>(p.key_dim); i += 256)
      state[i] = is_given && i < size(p) ? static_cast<float>(from[i]) : 0.0f;
    barrier();
  }
  MIXTAPE_DEVICE void store(const GatedDeltaRuleParams& p, Global<float> to) const {
    for (int i = flat_thread(); i < size(p); i += 256) to[i] = static_cast<float>(state[i]);
  }
  MIXTAPE_DEVICE DeltaMatrix<Shared<const float>> state_rows(const GatedDeltaRuleParams& p) const {
    return delta_matrix<Shared<const float>>(state, p.key_dim, kDeltaSlice, static_cast<int>(p.key_dim));
  }
  MIXTAPE_DEVICE DeltaMatrix<Shared<const float>> rows_of(Shared<const float> m) const {
    return delta_matrix<Shared<const float>>(m, kDeltaSlice, kDeltaChunk, kDeltaSlice);
  }
  MIXTAPE_DEVICE void keep(const DeltaTile<2>& tile, Shared<float> to) const {
    MIXTAPE_UNROLL
    for (int r = 0; r < 4; ++r) {
      MIXTAPE_UNROLL
      for (int c = 0; c < 2; ++c) to[tile.row(r) * kDeltaSlice + tile.col(c)] = tile.v[r][c];
    }
  }
  // state = whole * state + tile, turned; its rows are keys from `key` on.
  MIXTAPE_DEVICE void advance(const GatedDeltaRuleParams& p, const DeltaTile<2>& tile, int key,
                              float whole) const {
    MIXTAPE_UNROLL
    for (int r = 0; r < 4; ++r) {
      MIXTAPE_UNROLL
      for (int c = 0; c < 2; ++c) {
        if (key + tile.row(r) >= p.key_dim) continue;
        const std::int64_t i = tile.col(c) * p.key_dim + key + tile.row(r);
        state[i] = fma_f32(whole, state[i], tile.v[r][c]);
      }
    }
  }
};

}  // namespace mixtape
