#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/kl_div/kl_div_cpu.cpp"
#include <algorithm>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/logits-inl.h"
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/kl_div/kl_div_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {
namespace {

using logits::LogSumExp;

struct Stats {
  LogSumExp teacher;
  LogSumExp student;
  float log_ratio;  // log(P/Q)
};
static_assert(sizeof(Stats) == kKlStats * sizeof(float));

// Two rows side by side, t = scale*teacher - teacher_max and s alike:
// sums of exp(t), of exp(s), and of exp(t)*(t - s), where exp(t) = 0 adds 0.
struct Sums {
  float teacher_max;
  float student_max;
  double teacher;
  double student;
  double gap;
};

template <class T, class S>
void add_chunk(const T* teacher, const S* student, std::size_t n, float scale, Sums& sums) {
  const Floats factor = set(scale), low = set(-HUGE_VALF);
  const Floats t_max = set(logits::finite_max(sums.teacher_max)),
               s_max = set(logits::finite_max(sums.student_max));
  Floats teacher_sum = zero(), student_sum = zero(), gap = zero();
  for_each_step(n, false, [&](std::size_t i, auto step) MIXTAPE_SUM_ATTR {
    const Floats t = step.pad(hn::MulSub(step.load(teacher + i), factor, t_max), low);
    const Floats s = step.pad(hn::MulSub(step.load(student + i), factor, s_max), low);
    const Floats et = logits::exp_flushed(t), es = logits::exp_flushed(s);
    teacher_sum = hn::Add(teacher_sum, et);
    student_sum = hn::Add(student_sum, es);
    gap = hn::Add(gap, hn::IfThenElseZero(hn::Gt(et, zero()), hn::Mul(et, hn::Sub(t, s))));
  });
  sums.teacher += static_cast<double>(sum_lanes(teacher_sum));
  sums.student += static_cast<double>(sum_lanes(student_sum));
  sums.gap += static_cast<double>(sum_lanes(gap));
}

template <class T, class S>
Sums sums_of(const T* teacher, const S* student, std::size_t n, float scale) {
  Sums sums{logits::max(teacher, n, scale), logits::max(student, n, scale), 0.0, 0.0, 0.0};
  for (std::size_t begin = 0; begin < n; begin += logits::kChunk) {
    add_chunk(teacher + begin, student + begin, std::min(logits::kChunk, n - begin), scale, sums);
  }
  return sums;
}

// Rows that are nearly equal lose their divergence in the rounding of the exponentials. They are gone through
// again: sums of exp(t)*(t - s) and of exp(s) - exp(t), in which exp(t) stands out.
struct NearSums {
  double gap = 0.0, excess = 0.0;
};

// Below this loss the second way is taken.
constexpr double kNearLoss = 1e-3;

template <class T, class S>
void add_near_chunk(const T* teacher, const S* student, std::size_t n, float scale, const Sums& all,
                    NearSums& sums) {
  const Floats factor = set(scale), low = set(-HUGE_VALF);
  const Floats t_max = set(logits::finite_max(all.teacher_max)),
               s_max = set(logits::finite_max(all.student_max));
  Floats gap = zero(), excess = zero();
  for_each_step(n, false, [&](std::size_t i, auto step) MIXTAPE_SUM_ATTR {
    const Floats t = step.pad(hn::MulSub(step.load(teacher + i), factor, t_max), low);
    const Floats s = step.pad(hn::MulSub(step.load(student + i), factor, s_max), low);
    const Floats et = logits::exp_flushed(t), es = logits::exp_flushed(s), d = hn::Sub(s, t);
    const Floats growth =  // exp(d) - 1 for small d
        hn::MulAdd(hn::Mul(hn::MulAdd(d, set(1.0f / 6.0f), set(0.5f)), d), d, d);
    const auto is_there = hn::Gt(et, zero());
    const auto is_near = hn::And(is_there, hn::Lt(hn::Abs(d), set(0.03125f)));
    excess = hn::Add(excess, hn::IfThenElse(is_near, hn::Mul(et, growth), hn::Sub(es, et)));
    gap = hn::Add(gap, hn::IfThenElseZero(is_there, hn::Mul(et, hn::Neg(d))));
  });
  sums.gap += static_cast<double>(sum_lanes(gap));
  sums.excess += static_cast<double>(sum_lanes(excess));
}

template <class T, class S>
double near_loss(const T* teacher, const S* student, std::size_t n, float scale, const Sums& all) {
  NearSums sums;
  for (std::size_t begin = 0; begin < n; begin += logits::kChunk) {
    add_near_chunk(teacher + begin, student + begin, std::min(logits::kChunk, n - begin), scale, all, sums);
  }
  return sums.gap / all.teacher + std::log1p(sums.excess / all.teacher);
}

float not_negative(double loss) { return static_cast<float>(loss < 0.0 ? 0.0 : loss); }

// KL of two distributions over the same n entries.
template <class T, class S>
float forward_row(const T* teacher, const S* student, std::size_t n, float scale, Stats& stats) {
  const Sums sums = sums_of(teacher, student, n, scale);
  const double teacher_log = std::log(sums.teacher), student_log = std::log(sums.student);
  stats = {{sums.teacher_max, static_cast<float>(teacher_log)},
           {sums.student_max, static_cast<float>(student_log)},
           0.0f};
  const double loss = sums.gap / sums.teacher - teacher_log + student_log;
  return not_negative(loss < kNearLoss ? near_loss(teacher, student, n, scale, sums) : loss);
}

// out = weight * (q - p), added to out with accumulate. out may be student, then not with is_large.
// The entries that lie `ahead` of these are fetched meanwhile.
template <class T, class S, class D>
void backward_row(const T* teacher, const S* student, std::size_t n, float scale, const Stats& stats,
                  float weight, D* out, bool accumulate, bool is_large, std::size_t ahead) {
  const Floats factor = set(scale), w = set(weight);
  const Floats t_max = set(logits::finite_max(stats.teacher.max)), t_log = set(stats.teacher.log_sum);
  const Floats s_max = set(logits::finite_max(stats.student.max)), s_log = set(stats.student.log_sum);
  for_each_step(n, is_large, [&](std::size_t i, auto step) HWY_ATTR {
    __builtin_prefetch(teacher + ahead + i, 0, 2);
    __builtin_prefetch(student + ahead + i, 0, 2);
    const Floats t = hn::MulSub(step.load(teacher + i), factor, t_max);
    const Floats s = hn::MulSub(step.load(student + i), factor, s_max);
    const Floats p = logits::exp_flushed(hn::Sub(t, t_log)), q = logits::exp_flushed(hn::Sub(s, s_log));
    const Floats d = hn::Mul(w, hn::Sub(q, p));
    step.store(accumulate ? hn::Add(step.load(out + i), d) : d, out + i);
  });
}

// One row, where a pair of rows and the next pair stay in a second-level cache together; else 0.
template <class S, class T>
std::size_t ahead_of(const T*, std::size_t cols) {
  return cols * (sizeof(T) + sizeof(S)) <= std::size_t{1} << 20 ? cols : 0;
}

// Calls body(first element of teacher's row r, r) for every row, with the teacher's type. A thread takes
// several neighbours, as one row may fetch the next.
template <class Body>
void for_rows(const HostCall& call, const KlDivParams& p, std::int64_t teacher_cols, const Body& body) {
  const DType dtype = call.reads[0].dtype();
  const std::int64_t grain = std::max(cpu::row_grain(p.cols), std::clamp<std::int64_t>(p.rows / 64, 1, 8));
  cpu::parallel_for(p.rows, grain, [&](std::int64_t begin, std::int64_t end) {
    with_type(dtype, [&](auto t) {
      for (std::int64_t r = begin; r < end; ++r) body(call.read<decltype(t)>(0) + r * teacher_cols, r);
    });
  });
}

// One row of TopKTargets beside the student's entries at the same places, both divided by T.
struct TopKRow {
  template <class T, class S>
  TopKRow(const T* logits, const S* student, const std::uint32_t* indices, const KlDivParams& p)
      : teacher(static_cast<std::size_t>(p.k)), entries(teacher.size()) {
    for (std::size_t j = 0; j < teacher.size(); ++j) {
      teacher[j] = p.inv_t * static_cast<float>(logits[j]);
      entries[j] = p.inv_t * static_cast<float>(student[indices[j]]);
    }
  }
  std::vector<float> teacher;
  std::vector<float> entries;
};

// False where an index of the row, reported, is out of range.
bool check_range(const HostCall& call, const KlDivParams& p, std::int64_t row) {
  const std::uint32_t* indices = call.read<std::uint32_t>(2);
  for (std::int64_t i = row * p.k; i < (row + 1) * p.k; ++i) {
    if (indices[i] < p.cols) continue;
    call.report_index(i, indices[i], p.cols);
    return false;
  }
  return true;
}

void check_ascending(const HostCall& call, const KlDivParams& p) {
  const std::uint32_t* indices = call.read<std::uint32_t>(2);
  for (std::int64_t r = 0; r < p.rows; ++r) {
    for (std::int64_t i = r * p.k + 1; i < (r + 1) * p.k; ++i) {
      require(indices[i - 1] < indices[i], call.kernel, ": teacher.indices[", r, ",", i - r * p.k, "] is ",
              indices[i], " after ", indices[i - 1], ", expected strictly ascending");
    }
  }
}

double log_add(double a, double b) {
  const double max = a > b ? a : b;
  if (max == -HUGE_VAL) return max;
  return max + std::log(std::exp(a - max) + std::exp(b - max));
}

// The K entries plus one bucket: `rest` and `student_rest` are the log-sum-exps of the others.
float bucket_loss(const TopKRow& row, double rest, double student_rest, Stats& stats) {
  const Sums sums = sums_of(row.teacher.data(), row.entries.data(), row.teacher.size(), 1.0f);
  const double t_max = static_cast<double>(logits::finite_max(sums.teacher_max));
  const double s_max = static_cast<double>(logits::finite_max(sums.student_max));
  const double teacher_log = log_add(std::log(sums.teacher), rest - t_max);
  const double student_log = log_add(std::log(sums.student), student_rest - s_max);
  const double log_p = rest - t_max - teacher_log, log_q = student_rest - s_max - student_log;
  const double mass = std::exp(log_p);
  const double ratio = mass == 0.0 ? -HUGE_VAL : log_p - log_q;
  stats = {{static_cast<float>(t_max), static_cast<float>(teacher_log)},
           {static_cast<float>(s_max), static_cast<float>(student_log)},
           static_cast<float>(ratio)};
  const double inside = (sums.gap + sums.teacher * (student_log - teacher_log)) * std::exp(-teacher_log);
  return not_negative(inside + (mass == 0.0 ? 0.0 : mass * ratio));
}

// out = weight * q * (1 - P/Q) for every entry; with accumulate added to out.
template <class S>
void rest_gradient(const S* student, std::size_t n, float scale, const Stats& stats, float weight, S* out,
                   bool accumulate) {
  const double r = static_cast<double>(stats.log_ratio);
  const double log_factor =
      r > 0.0 ? r + std::log1p(-std::exp(-r)) : std::log1p(-std::exp(r));  // log |1 - P/Q|
  LogSumExp lse = stats.student;
  lse.log_sum = r == HUGE_VAL ? HUGE_VALF : static_cast<float>(static_cast<double>(lse.log_sum) - log_factor);
  logits::weighted_softmax(student, out, n, scale, lse, r > 0.0 ? -weight : weight, accumulate, false);
}

// The K entries' gradients are made before the row is written: out may be student.
template <class T, class S>
void top_k_backward_row(const T* teacher, const S* student, const std::uint32_t* indices,
                        const KlDivParams& p, const Stats& stats, float weight, S* out) {
  TopKRow row(teacher, student, indices, p);
  const auto cols = static_cast<std::size_t>(p.cols), k = static_cast<std::size_t>(p.k);
  std::vector<float> inside(k);
  if (p.accumulate != 0) {
    for (std::size_t j = 0; j < k; ++j) inside[j] = static_cast<float>(out[indices[j]]);
  }
  backward_row(row.teacher.data(), row.entries.data(), k, 1.0f, stats, weight, inside.data(),
               p.accumulate != 0, false, 0);
  if (p.rest_bucket != 0) {
    rest_gradient(student, cols, p.inv_t, stats, weight, out, p.accumulate != 0);
  } else if (p.accumulate == 0) {
    std::fill(out, out + cols, S(0.0f));
  }
  for (std::size_t j = 0; j < k; ++j) out[indices[j]] = S(inside[j]);
}

}  // namespace

template <class S>
void kl_div_forward(const HostCall& call) {
  const auto& p = call.params<KlDivParams>();
  for_rows(call, p, p.cols, [&](const auto* teacher, std::int64_t r) {
    call.write<float>(0)[r] = forward_row(teacher, call.read<S>(1) + r * p.cols,
                                          static_cast<std::size_t>(p.cols), p.inv_t, call.write<Stats>(1)[r]);
  });
}
MIXTAPE_SIMD_KERNEL(kl_div_forward)

template <class S>
void kl_div_backward(const HostCall& call) {
  const auto& p = call.params<KlDivParams>();
  const auto cols = static_cast<std::size_t>(p.cols);
  const S* first = call.write<S>(0);
  const bool accumulate = p.accumulate != 0;
  const bool is_large = !accumulate && first != call.read<S>(1) && streams(first, p.rows, p.cols);
  for_rows(call, p, p.cols, [&](const auto* teacher, std::int64_t r) {
    const float dloss = call.read<float>(3)[r];
    S* out = call.write<S>(0) + r * p.cols;
    if (dloss != 0.0f) {
      backward_row(teacher, call.read<S>(1) + r * p.cols, cols, p.inv_t, call.read<Stats>(2)[r],
                   dloss * p.inv_t, out, accumulate, is_large, 0);
    } else if (!accumulate) {
      std::fill(out, out + cols, S(0.0f));
    }
  });
}
MIXTAPE_SIMD_KERNEL(kl_div_backward)

template <class S>
void kl_div_forward_backward(const HostCall& call) {
  const auto& p = call.params<KlDivParams>();
  const auto cols = static_cast<std::size_t>(p.cols);
  const S* first = call.write<S>(1);
  const bool is_large = first != call.read<S>(1) && streams(first, p.rows, p.cols);
  for_rows(call, p, p.cols, [&](const auto* teacher, std::int64_t r) {
    const S* student = call.read<S>(1) + r * p.cols;
    const float dloss = call.read<float>(2)[r];
    S* out = call.write<S>(1) + r * p.cols;
    Stats stats{};
    call.write<float>(0)[r] = forward_row(teacher, student, cols, p.inv_t, stats);
    if (dloss != 0.0f) {
      backward_row(teacher, student, cols, p.inv_t, stats, dloss * p.inv_t, out, false, is_large,
                   ahead_of<S>(teacher, cols));
    } else {
      std::fill(out, out + cols, S(0.0f));
    }
  });
}
MIXTAPE_SIMD_KERNEL(kl_div_forward_backward)

template <class S>
void kl_div_top_k_forward(const HostCall& call) {
  const auto& p = call.params<KlDivParams>();
  check_ascending(call, p);
  for_rows(call, p, p.k, [&](const auto* teacher, std::int64_t r) {
    Stats& stats = call.write<Stats>(1)[r];
    float& loss = call.write<float>(0)[r];
    stats = {};
    loss = 0.0f;
    if (!check_range(call, p, r)) return;
    const S* student = call.read<S>(1) + r * p.cols;
    const std::uint32_t* indices = call.read<std::uint32_t>(2) + r * p.k;
    const TopKRow row(teacher, student, indices, p);
    if (p.rest_bucket == 0) {
      loss = forward_row(row.teacher.data(), row.entries.data(), row.teacher.size(), 1.0f, stats);
      return;
    }
    const double student_rest = logits::rest_log_sum_exp(student, static_cast<std::size_t>(p.cols), p.inv_t,
                                                         indices, row.teacher.size());
    loss = bucket_loss(row, static_cast<double>(call.read<float>(3)[r]), student_rest, stats);
  });
}
MIXTAPE_SIMD_KERNEL(kl_div_top_k_forward)

template <class S>
void kl_div_top_k_backward(const HostCall& call) {
  const auto& p = call.params<KlDivParams>();
  for_rows(call, p, p.k, [&](const auto* teacher, std::int64_t r) {
    const float dloss = call.read<float>(4)[r];
    S* out = call.write<S>(0) + r * p.cols;
    if (check_range(call, p, r) && dloss != 0.0f) {
      top_k_backward_row(teacher, call.read<S>(1) + r * p.cols, call.read<std::uint32_t>(2) + r * p.k, p,
                         call.read<Stats>(3)[r], dloss * p.inv_t, out);
    } else if (p.accumulate == 0) {
      std::fill(out, out + p.cols, S(0.0f));
    }
  });
}
MIXTAPE_SIMD_KERNEL(kl_div_top_k_backward)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(kl_div_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(kl_div_backward)
MIXTAPE_REGISTER_SIMD_KERNEL(kl_div_forward_backward)
MIXTAPE_REGISTER_SIMD_KERNEL(kl_div_top_k_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(kl_div_top_k_backward)
}  // namespace mixtape
#endif
