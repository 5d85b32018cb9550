// Rows of logits z = scale * x in GPU kernels: packs of them on their way at a time, and a sum of
// exponentials that follows its maximum. Shared by the kernels of losses.
#pragma once

#include "mixtape/backend/gpu/kernel_language.h"

namespace mixtape {

MIXTAPE_DEVICE float minus_infinity() { return float_of(0xff800000u); }
// The maximum of no finite entry counts as 0.
MIXTAPE_DEVICE float finite_max(float max) { return max == minus_infinity() ? 0.0f : max; }

// Elements per pack where rows of T and S are moved side by side: 16 bytes of the smaller.
template <class T, class S>
struct PackOf {
  static constexpr int kWidth = 16 / static_cast<int>(sizeof(T) < sizeof(S) ? sizeof(T) : sizeof(S));
};

// What a thread holds of a row at a time: the H packs of N elements that begin at at + h * step, -inf past
// the row's end. N is 1, or divides cols and the row is aligned.
template <class T, int N, int H>
struct Run {
  Pack<T, N> packs[H];
};
template <class T, int N, int H>
MIXTAPE_DEVICE void load_run(Global<const T> row, std::int64_t at, std::int64_t step, std::int64_t cols,
                             Run<T, N, H>& run) {
  MIXTAPE_UNROLL
  for (int h = 0; h < H; ++h) {
    if (at + h * step < cols) {
      run.packs[h] = load_pack<N>(row + (at + h * step));
    } else {
      MIXTAPE_UNROLL
      for (int i = 0; i < N; ++i) run.packs[h].v[i] = from_f32<T>(minus_infinity());
    }
  }
}

template <int N, class T>
MIXTAPE_DEVICE Pack<T, N> pack_of(T v) {
  Pack<T, N> pack;
  MIXTAPE_UNROLL
  for (int i = 0; i < N; ++i) pack.v[i] = v;
  return pack;
}
template <class T, int N>
MIXTAPE_DEVICE float max_of(const Pack<T, N>& pack) {
  float max = to_f32(pack.v[0]);
  MIXTAPE_UNROLL
  for (int i = 1; i < N; ++i) max = max_f32(max, to_f32(pack.v[i]));
  return max;
}

// The largest x; a NaN is passed over, its exponential tells.
template <class T, int N, int H>
MIXTAPE_DEVICE float run_max(const Run<T, N, H>& run) {
  Pack<T, N> max = run.packs[0];
  MIXTAPE_UNROLL
  for (int h = 1; h < H; ++h) max = max_packs(max, run.packs[h]);
  return max_f32(max_of(max), minus_infinity());
}

constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

// The logarithm to base 2 of e^(z - z_max), as the formula has it, and in one instruction, up to a part that all
// entries share.
struct PlainLog {
  float scale, max;
  MIXTAPE_DEVICE float operator()(float x) const { return fma_f32(x, scale, -max) * kLog2E; }
};
struct FoldedLog {
  float unit, shift;
  MIXTAPE_DEVICE float operator()(float x) const { return fma_f32(x, unit, -shift); }
};
MIXTAPE_DEVICE PlainLog plain_log(float scale, float z_max) { return PlainLog{scale, finite_max(z_max)}; }
MIXTAPE_DEVICE FoldedLog folded_log(const PlainLog& p) { return FoldedLog{p.scale * kLog2E, p.max * kLog2E}; }
// What entries of a FoldedLog have more.
MIXTAPE_DEVICE float shared_part(const FoldedLog& folded, const PlainLog& plain) {
  const float x = plain.max / plain.scale;
  return folded(x) - plain(x);
}
// f32 is memory's work anyway; the shared part of larger logits would overflow.
template <class T>
MIXTAPE_DEVICE bool folds(const PlainLog& plain) {
  return sizeof(T) == 2 && abs_f32(plain.max) <= 65536.0f;
}

// body(log, shared): 2^log(x) is e^(z - z_max) times 2^shared.
template <class T, class Body>
MIXTAPE_DEVICE void with_log(float scale, float z_max, const Body& body) {
  const PlainLog plain = plain_log(scale, z_max);
  if (!folds<T>(plain)) return body(plain, 0.0f);
  const FoldedLog folded = folded_log(plain);
  body(folded, shared_part(folded, plain));
}

// e^(x - max) / factor of a run's entries.
template <int N, int H>
struct Powers {
  float of[H][N];
  float factor;
};

// Returns the sum of e^(x - max).
template <class T, int N, int H>
MIXTAPE_DEVICE float powers_of(const Run<T, N, H>& run, float max, Powers<N, H>& powers) {
  float sum = 0.0f;
  with_log<T>(1.0f, max, [&](const auto& log, float shared) {
    MIXTAPE_UNROLL
    for (int h = 0; h < H; ++h) {
      float part = 0.0f;
      MIXTAPE_UNROLL
      for (int i = 0; i < N; ++i) {
        powers.of[h][i] = exp2_fast(log(to_f32(run.packs[h].v[i])));
        part += powers.of[h][i];
      }
      sum += part;
    }
    powers.factor = exp2_fast(-shared);
  });
  return powers.factor * sum;
}

// sum exp(z - max) over what was added, max its largest z.
struct LogSum {
  float max, sum;
};

template <class T, int N, int H>
MIXTAPE_DEVICE void add_run(LogSum& s, const Run<T, N, H>& run, float scale) {
  const float max = scale * run_max(run);
  if (max > s.max) {
    s.sum *= exp_fast(s.max - max);
    s.max = max;
  }
  const float shift = finite_max(s.max);
  float sum = 0.0f;
  MIXTAPE_UNROLL
  for (int h = 0; h < H; ++h) {
    float part = 0.0f;
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) part += exp_fast(fma_f32(to_f32(run.packs[h].v[i]), scale, -shift));
    sum += part;
  }
  s.sum += sum;
}

// What is left of a thread's sum under the maximum of all.
MIXTAPE_DEVICE float rescale(float max, float common) {
  return max == common ? 1.0f : exp_fast(max - common);
}

// Over the block, the same in every thread.
MIXTAPE_DEVICE LogSum block_log_sum(const LogSum& s, Shared<float> scratch) {
  const float max = block_max(s.max, scratch);
  return LogSum{max, block_sum(s.sum * rescale(s.max, max), scratch)};
}

// exp(z - max - log_sum), 0 below 2^-126.
MIXTAPE_DEVICE float softmax_at(float x, float scale, float max, float log_sum) {
  return exp_fast(fma_f32(x, scale, -max) - log_sum);
}

}  // namespace mixtape
