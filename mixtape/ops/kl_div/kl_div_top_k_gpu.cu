// The forms over the teacher's K largest entries. A block per row.
#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/kl_div/chosen_gpu.h"
#include "mixtape/ops/kl_div/kl_sums_gpu.h"

namespace mixtape {

// Reports an index of the row that is out of range; the same answer in every thread.
MIXTAPE_DEVICE bool is_in_range(const KlDivParams& p, std::int64_t row, Global<const std::uint32_t> indices,
                                Global<std::uint64_t> errors, Shared<float> scratch) {
  float bad = 0.0f;
  for (std::int64_t i = row * p.k + thread_x(); i < (row + 1) * p.k; i += threads_x()) {
    const std::uint32_t index = indices[i];
    if (index < p.cols) continue;
    report_index(errors, i, index);
    bad = 1.0f;
  }
  return block_max(bad, scratch) == 0.0f;
}
// Reports an index that is not above the one before.
MIXTAPE_DEVICE bool is_ascending(const KlDivParams& p, std::int64_t row, Global<const std::uint32_t> indices,
                                 Global<std::uint64_t> errors, Shared<float> scratch) {
  float bad = 0.0f;
  for (std::int64_t i = row * p.k + 1 + thread_x(); i < (row + 1) * p.k; i += threads_x()) {
    const std::uint32_t index = indices[i];
    if (indices[i - 1] < index) continue;
    report_index(errors, i, index);
    bad = 1.0f;
  }
  return block_max(bad, scratch) == 0.0f;
}

// Sums over the K entries of a row, both divided by T.
template <class T, class S>
MIXTAPE_DEVICE KlSums chosen_sums(const KlDivParams& p, Global<const T> teacher, Global<const S> student,
                                  Global<const std::uint32_t> indices, Shared<float> scratch) {
  KlSums k = no_sums();
  for (std::int64_t j = thread_x(); j < p.k; j += threads_x()) {
    const float t = p.inv_t * to_f32(teacher[j]), s = p.inv_t * to_f32(student[indices[j]]);
    if (t > k.t_max || s > k.s_max) move_maxima(k, t > k.t_max ? t : k.t_max, s > k.s_max ? s : k.s_max);
    add_entry(k, t - finite_max(k.t_max), s - finite_max(k.s_max));
  }
  return block_sums(k, scratch);
}

template <class T, class S>
MIXTAPE_DEVICE NearSums chosen_near_sums(const KlDivParams& p, Global<const T> teacher,
                                         Global<const S> student, Global<const std::uint32_t> indices,
                                         const KlSums& all, Shared<float> scratch) {
  NearSums k{0.0f, 0.0f};
  for (std::int64_t j = thread_x(); j < p.k; j += threads_x())
    add_near_entry(k, p.inv_t * to_f32(teacher[j]) - finite_max(all.t_max),
                   p.inv_t * to_f32(student[indices[j]]) - finite_max(all.s_max));
  return block_near_sums(k, scratch);
}

MIXTAPE_DEVICE float log_add(float a, float b) {
  const float max = a > b ? a : b;
  if (max == minus_infinity()) return max;
  return max + log_f32(exp_f32(a - max) + exp_f32(b - max));
}

// The K entries plus one bucket: `rest` and `student_rest` are the log-sum-exps of the others.
MIXTAPE_DEVICE float bucket_loss(const KlSums& k, float rest, const LogSum& student_rest, KlRow& row) {
  const float t_max = finite_max(k.t_max), s_max = finite_max(k.s_max);
  const float t_rest = rest - t_max;
  const float s_rest = (finite_max(student_rest.max) - s_max) + log_f32(student_rest.sum);
  const float t_log = log_add(log_f32(k.t_sum), t_rest), s_log = log_add(log_f32(k.s_sum), s_rest);
  const float log_p = t_rest - t_log, log_q = s_rest - s_log;
  const bool is_empty = log_p == minus_infinity();
  row = KlRow{t_max, t_log, s_max, s_log, is_empty ? minus_infinity() : log_p - log_q};
  const float inside = fma_f32(k.t_sum, s_log - t_log, k.gap) * exp_f32(-t_log);
  if (is_empty) return not_negative(inside);
  const bool is_impossible = row.log_ratio == -minus_infinity();
  return not_negative(inside + (is_impossible ? row.log_ratio : exp_f32(log_p) * row.log_ratio));
}

template <class T, class S>
MIXTAPE_DEVICE void kl_div_top_k_forward(const KlDivParams& p, Global<const T> teacher,
                                         Global<const S> student, Global<const std::uint32_t> indices,
                                         Global<const float> rest, Global<float> loss, Global<float> stats,
                                         Global<std::uint64_t> range_errors,
                                         Global<std::uint64_t> order_errors, Shared<std::uint32_t> chosen,
                                         Shared<float> scratch) {
  const std::int64_t row = block_x();
  const bool fits = is_in_range(p, row, indices, range_errors, scratch);
  KlRow r{0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
  float value = 0.0f;
  if (is_ascending(p, row, indices, order_errors, scratch) && fits) {
    const Global<const S> entries = student + row * p.cols;
    const Global<const std::uint32_t> at = indices + row * p.k;
    const KlSums sums = chosen_sums(p, teacher + row * p.k, entries, at, scratch);
    if (p.rest_bucket != 0) {
      const bool is_dense = is_aligned(student, 16) && p.cols % PackOf<S, S>::kWidth == 0;
      const LogSum others = rest_log_sum(entries, p.cols, is_dense, p.inv_t, at, p.k, chosen, scratch);
      value = bucket_loss(sums, rest[row], others, r);
    } else {
      value = kl_loss(sums, r);
      if (value < kNearLoss)
        value = near_loss(sums, chosen_near_sums(p, teacher + row * p.k, entries, at, sums, scratch));
    }
  }
  if (thread_x() != 0) return;
  loss[row] = value;
  store_row(stats, row, r);
}

#define FORWARD(T, S)                                                                                       \
  MIXTAPE_KERNEL(kl_div_top_k_forward_##T##_##S, 512, KlDivParams p, Global<const T> teacher,               \
                 Global<const S> student, Global<const std::uint32_t> indices, Global<const float> rest,    \
                 Global<float> loss, Global<float> stats, Global<std::uint64_t> range_errors,               \
                 Global<std::uint64_t> order_errors) {                                                      \
    await_earlier();                                                                                        \
    MIXTAPE_SHARED(std::uint32_t, chosen, kChosenWords);                                                    \
    MIXTAPE_SHARED(float, scratch, 32);                                                                     \
    kl_div_top_k_forward<T, S>(p, teacher, student, indices, rest, loss, stats, range_errors, order_errors, \
                               chosen, scratch);                                                            \
  }
MIXTAPE_VALUE_PAIRS(FORWARD)

// The gradient of an entry outside K: weight * exp(z - max - log_sum).
struct RestGradient {
  float weight, max, log_sum;
};

// weight * q * (1 - P/Q), |1 - P/Q| within the exponential: it may be huge where q is tiny.
MIXTAPE_DEVICE RestGradient rest_gradient(const KlRow& row, float weight) {
  const float r = row.log_ratio;
  const float log_factor = r > 0.0f ? r + log_f32(1.0f - exp_f32(-r)) : log_f32(1.0f - exp_f32(r));
  const float log_sum = r == -minus_infinity() ? r : row.s_log - log_factor;
  return RestGradient{r > 0.0f ? -weight : weight, row.s_max, log_sum};
}

// Writes the part's entries that are not chosen: `out` may be `part`, whose chosen entries stay.
template <int N, class S>
MIXTAPE_DEVICE void store_rest(const KlDivParams& p, const RestGradient& g, Global<const S> part,
                               std::int64_t columns, Shared<std::uint32_t> chosen, Global<S> out) {
  const std::int64_t step = static_cast<std::int64_t>(threads_x()) * N;
  constexpr int kPacks = 2;
  for (std::int64_t at = static_cast<std::int64_t>(thread_x()) * N; at < columns; at += kPacks * step) {
    Run<S, N, kPacks> run;
    if (g.weight != 0.0f) load_run(part, at, step, columns, run);
    MIXTAPE_UNROLL
    for (int h = 0; h < kPacks; ++h) {
      const std::int64_t c = at + h * step;
      if (c >= columns) break;
      Pack<S, N> d;
      if (p.accumulate != 0) d = load_pack<N>(out + c);
      MIXTAPE_UNROLL
      for (int i = 0; i < N; ++i) {
        const float v = g.weight == 0.0f
                            ? 0.0f
                            : g.weight * softmax_at(to_f32(run.packs[h].v[i]), p.inv_t, g.max, g.log_sum);
        d.v[i] = from_f32<S>(p.accumulate != 0 ? to_f32(d.v[i]) + v : v);
      }
      const std::uint32_t bits = chosen_bits<N>(chosen, c);
      if (bits == 0) {
        store_pack(out + c, d);
        continue;
      }
      MIXTAPE_UNROLL
      for (int i = 0; i < N; ++i) {
        if ((bits >> i & 1u) == 0) out[c + i] = d.v[i];
      }
    }
  }
}

// weight * (q - p) at the K entries.
template <class T, class S>
MIXTAPE_DEVICE void store_chosen(const KlDivParams& p, const KlRow& r, float weight, Global<const T> teacher,
                                 Global<const S> student, Global<const std::uint32_t> indices,
                                 Global<S> out) {
  for (std::int64_t j = thread_x(); j < p.k; j += threads_x()) {
    const std::int64_t c = indices[j];
    const float t = p.inv_t * to_f32(teacher[j]), s = p.inv_t * to_f32(student[c]);
    const float d = weight * (exp_f32((s - r.s_max) - r.s_log) - exp_f32((t - r.t_max) - r.t_log));
    out[c] = from_f32<S>(p.accumulate != 0 ? to_f32(out[c]) + d : d);
  }
}

template <class T, class S>
MIXTAPE_DEVICE void kl_div_top_k_backward(const KlDivParams& p, Global<const T> teacher,
                                          Global<const S> student, Global<const std::uint32_t> indices,
                                          Global<const float> stats, Global<const float> dloss,
                                          Global<S> dstudent, Global<std::uint64_t> errors,
                                          Shared<std::uint32_t> chosen, Shared<float> scratch) {
  constexpr int kPack = PackOf<S, S>::kWidth;
  const std::int64_t row = block_x();
  const bool fits = is_in_range(p, row, indices, errors, scratch);
  const float weight = fits ? dloss[row] * p.inv_t : 0.0f;
  const KlRow r = load_row(stats, row);
  const Global<const std::uint32_t> at = indices + row * p.k;
  const Global<const S> in = student + row * p.cols;
  const Global<S> out = dstudent + row * p.cols;
  const bool has_rest = p.rest_bucket != 0 && weight != 0.0f;
  RestGradient g{0.0f, 0.0f, 0.0f};
  if (has_rest) g = rest_gradient(r, weight);
  const bool is_dense = is_aligned(student, 16) && is_aligned(dstudent, 16) && p.cols % kPack == 0;
  for (std::int64_t first = 0; first < p.cols && (has_rest || p.accumulate == 0); first += kChosenColumns) {
    const std::int64_t columns = part_columns(p.cols, first);
    mark_chosen(chosen, first, columns, at, weight != 0.0f ? p.k : 0);
    if (is_dense) {
      store_rest<kPack>(p, g, in + first, columns, chosen, out + first);
    } else {
      store_rest<1>(p, g, in + first, columns, chosen, out + first);
    }
  }
  barrier();
  if (weight != 0.0f) store_chosen(p, r, weight, teacher + row * p.k, in, at, out);
}

#define BACKWARD(T, S)                                                                                    \
  MIXTAPE_KERNEL(kl_div_top_k_backward_##T##_##S, 512, KlDivParams p, Global<const T> teacher,            \
                 Global<const S> student, Global<const std::uint32_t> indices, Global<const float> stats, \
                 Global<const float> dloss, Global<S> dstudent, Global<std::uint64_t> errors) {           \
    await_earlier();                                                                                      \
    MIXTAPE_SHARED(std::uint32_t, chosen, kChosenWords);                                                  \
    MIXTAPE_SHARED(float, scratch, 32);                                                                   \
    kl_div_top_k_backward<T, S>(p, teacher, student, indices, stats, dloss, dstudent, errors, chosen,     \
                                scratch);                                                                 \
  }
MIXTAPE_VALUE_PAIRS(BACKWARD)

}  // namespace mixtape
