// Two rows of logits side by side in GPU kernels.
#pragma once

#include "mixtape/backend/gpu/logits.h"
#include "mixtape/ops/kl_div/kl_div_params.h"

namespace mixtape {

// With t = z - t_max of the teacher and s = z - s_max of the student, over what was added:
// sums of exp(t), of exp(s), and of exp(t)*(t - s), where exp(t) = 0 adds 0.
struct KlSums {
  float t_max, s_max, t_sum, s_sum, gap;
};
MIXTAPE_DEVICE KlSums no_sums() { return KlSums{minus_infinity(), minus_infinity(), 0.0f, 0.0f, 0.0f}; }

// What the sums are under maxima at least as large.
MIXTAPE_DEVICE void move_maxima(KlSums& k, float t_max, float s_max) {
  const float factor = rescale(k.t_max, t_max);
  const float moved = (finite_max(k.t_max) - finite_max(t_max)) - (finite_max(k.s_max) - finite_max(s_max));
  k.gap = factor > 0.0f ? factor * fma_f32(k.t_sum, moved, k.gap) : 0.0f;
  k.t_sum *= factor;
  k.s_sum *= rescale(k.s_max, s_max);
  k.t_max = t_max;
  k.s_max = s_max;
}

// Adds one entry of each, relative to the maxima.
MIXTAPE_DEVICE void add_entry(KlSums& k, float t, float s) {
  const float p = exp_fast(t), q = exp_fast(s);
  k.t_sum += p;
  k.s_sum += q;
  if (p > 0.0f) k.gap = fma_f32(p, t - s, k.gap);
}

template <class T, class S, int N, int H>
MIXTAPE_DEVICE void add_runs(KlSums& k, const Run<T, N, H>& teacher, const Run<S, N, H>& student,
                             float scale) {
  const float t_max = scale * run_max(teacher), s_max = scale * run_max(student);
  if (t_max > k.t_max || s_max > k.s_max)
    move_maxima(k, t_max > k.t_max ? t_max : k.t_max, s_max > k.s_max ? s_max : k.s_max);
  const float t_shift = finite_max(k.t_max), s_shift = finite_max(k.s_max);
  KlSums sum{k.t_max, k.s_max, 0.0f, 0.0f, 0.0f};
  MIXTAPE_UNROLL
  for (int h = 0; h < H; ++h) {
    KlSums part{k.t_max, k.s_max, 0.0f, 0.0f, 0.0f};
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i)
      add_entry(part, fma_f32(to_f32(teacher.packs[h].v[i]), scale, -t_shift),
                fma_f32(to_f32(student.packs[h].v[i]), scale, -s_shift));
    sum.t_sum += part.t_sum;
    sum.s_sum += part.s_sum;
    sum.gap += part.gap;
  }
  k.t_sum += sum.t_sum;
  k.s_sum += sum.s_sum;
  k.gap += sum.gap;
}

// Over the block, the same in every thread.
MIXTAPE_DEVICE KlSums block_sums(KlSums k, Shared<float> scratch) {
  const float t_max = block_max(k.t_max, scratch), s_max = block_max(k.s_max, scratch);
  move_maxima(k, t_max, s_max);
  return KlSums{t_max, s_max, block_sum(k.t_sum, scratch), block_sum(k.s_sum, scratch),
                block_sum(k.gap, scratch)};
}

// Rows that are nearly equal lose their divergence in the rounding of the sums. They are gone through again:
// sums of exp(t)*(t - s) and of exp(s) - exp(t) under the rows' final maxima.
struct NearSums {
  float gap, excess;
};

// Below this loss the second way is taken: the first one errs by up to 3e-7.
constexpr float kNearLoss = 1e-3f;

MIXTAPE_DEVICE void add_near_entry(NearSums& k, float t, float s) {
  const float p = exp_fast(t), q = exp_fast(s), d = s - t;
  const float growth = fma_f32(fma_f32(d, 1.0f / 6.0f, 0.5f) * d, d, d);  // exp(d) - 1
  k.excess += p > 0.0f && abs_f32(d) < 0.03125f ? p * growth : q - p;
  if (p > 0.0f) k.gap = fma_f32(p, -d, k.gap);
}

template <class T, class S, int N, int H>
MIXTAPE_DEVICE void add_near_runs(NearSums& k, const KlSums& all, const Run<T, N, H>& teacher,
                                  const Run<S, N, H>& student, float scale) {
  const float t_shift = finite_max(all.t_max), s_shift = finite_max(all.s_max);
  NearSums sum{0.0f, 0.0f};
  MIXTAPE_UNROLL
  for (int h = 0; h < H; ++h) {
    NearSums part{0.0f, 0.0f};
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i)
      add_near_entry(part, fma_f32(to_f32(teacher.packs[h].v[i]), scale, -t_shift),
                     fma_f32(to_f32(student.packs[h].v[i]), scale, -s_shift));
    sum.gap += part.gap;
    sum.excess += part.excess;
  }
  k.gap += sum.gap;
  k.excess += sum.excess;
}

MIXTAPE_DEVICE NearSums block_near_sums(const NearSums& k, Shared<float> scratch) {
  return NearSums{block_sum(k.gap, scratch), block_sum(k.excess, scratch)};
}

// log(1 + x), exact to the last units also where 1 + x has lost x's digits.
MIXTAPE_DEVICE float log1p_f32(float x) {
  const float sum = 1.0f + x;
  return sum == 1.0f ? x : log_f32(sum) * (x / (sum - 1.0f));
}

MIXTAPE_DEVICE float not_negative(float loss) { return loss < 0.0f ? 0.0f : loss; }

// What the backward needs of a row.
struct KlRow {
  float t_max, t_log, s_max, s_log, log_ratio;
};
MIXTAPE_DEVICE void store_row(Global<float> stats, std::int64_t row, const KlRow& r) {
  const Global<float> out = stats + row * kKlStats;
  out[0] = r.t_max;
  out[1] = r.t_log;
  out[2] = r.s_max;
  out[3] = r.s_log;
  out[4] = r.log_ratio;
}
MIXTAPE_DEVICE KlRow load_row(Global<const float> stats, std::int64_t row) {
  const Global<const float> in = stats + row * kKlStats;
  return KlRow{finite_max(in[0]), in[1], finite_max(in[2]), in[3], in[4]};
}

// The loss over the entries that were summed, and their row.
MIXTAPE_DEVICE float kl_loss(const KlSums& k, KlRow& row) {
  row = KlRow{k.t_max, log_f32(k.t_sum), k.s_max, log_f32(k.s_sum), 0.0f};
  return not_negative((k.gap / k.t_sum - row.t_log) + row.s_log);
}
MIXTAPE_DEVICE float near_loss(const KlSums& k, const NearSums& near) {
  return not_negative(near.gap / k.t_sum + log1p_f32(near.excess / k.t_sum));
}

}  // namespace mixtape
