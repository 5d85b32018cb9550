// One row of logits z = scale * x: its maximum, the sum of its exponentials, its softmax. Shared by the host
// kernels of losses. Compiled once per instruction set, like backend/cpu/simd-inl.h.
#if defined(MIXTAPE_BACKEND_CPU_LOGITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MIXTAPE_BACKEND_CPU_LOGITS_INL_H_
#undef MIXTAPE_BACKEND_CPU_LOGITS_INL_H_
#else
#define MIXTAPE_BACKEND_CPU_LOGITS_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "mixtape/backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE::logits {

// Exponentials are summed in f32 within a chunk, chunks in f64.
inline constexpr std::size_t kChunk = 1024;

// log sum exp z = max + log_sum, kept as two numbers so that nothing cancels where |max| is large.
struct LogSumExp {
  float max;
  float log_sum;
};

// e^x for x <= 88 within 1 unit + |x| * 2^-28; results below 2^-126 become 0, NaN stays. Half the work of
// exp, and a short chain: the power of two comes out of the low bits of 1.5 * 2^23 + 127 + x / ln 2, the
// polynomial is evaluated by pairs.
HWY_INLINE Floats exp_flushed(Floats x) {
  const Floats magic = set(12583039.0f);
  const Floats shifted = hn::MulAdd(x, set(1.44269504088896341f), magic);
  const Floats r = hn::NegMulAdd(hn::Sub(shifted, magic), set(0.693147180559945309f), x);
  const Floats r2 = hn::Mul(r, r);
  const Floats low = hn::MulAdd(set(1.6666520398846993e-1f), r, set(4.9999993432098916e-1f));
  const Floats high = hn::MulAdd(set(8.368745127077302e-3f), r, set(4.166838979069701e-2f));
  const Floats q = hn::MulAdd(hn::MulAdd(set(1.3814539877362113e-3f), r2, high), r2, low);
  const Floats p = hn::MulAdd(q, r2, hn::Add(r, set(1.0f)));
  const Floats power = hn::BitCast(kF, hn::ShiftLeft<23>(hn::BitCast(UintTag(), shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, set(-88.0f)), hn::Mul(p, power));
}

// A maximum of no finite entry counts as 0.
inline float finite_max(float max) { return max == -HUGE_VALF ? 0.0f : max; }

// max z; any value where the row holds a NaN (the sum of exponentials is NaN then).
template <class T>
float max(const T* x, std::size_t n, float scale) {
  const std::size_t step = lanes();
  Floats a = set(-HUGE_VALF), b = a, c = a, d = a;
  std::size_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    a = hn::Max(a, load(x + i));
    b = hn::Max(b, load(x + i + step));
    c = hn::Max(c, load(x + i + 2 * step));
    d = hn::Max(d, load(x + i + 3 * step));
  }
  for (; i < n; i += step) a = hn::Max(a, keep_first(load(x + i, n - i), n - i, set(-HUGE_VALF)));
  return scale * hn::GetLane(hn::MaxOfLanes(kF, hn::Max(hn::Max(a, b), hn::Max(c, d))));
}

// sum exp(z - max) over at most kChunk entries. The n entries after them are fetched meanwhile.
template <class T>
double sum_chunk(const T* x, std::size_t n, float scale, float max) {
  const Floats factor = set(scale), shift = set(finite_max(max));
  Floats sum = zero();
  for_each_step(n, false, [&](std::size_t i, auto step) MIXTAPE_SUM_ATTR {
    __builtin_prefetch(x + n + i);
    const Floats e = exp_flushed(hn::MulSub(step.load(x + i), factor, shift));
    sum = hn::Add(sum, step.pad(e, zero()));
  });
  return static_cast<double>(sum_lanes(sum));
}

// sum exp(z - max) of a row that comes in chunks, for the maximum so far.
struct RunningSum {
  float max = -HUGE_VALF;
  double sum = 0.0;

  template <class T>
  void add(const T* x, std::size_t n, float scale) {
    const float chunk_max = logits::max(x, n, scale);
    if (chunk_max > max) {
      sum *= std::exp(static_cast<double>(max) - static_cast<double>(chunk_max));
      max = chunk_max;
    }
    sum += sum_chunk(x, n, scale, max);
  }
};

// The row is read once.
template <class T>
RunningSum max_and_sum(const T* x, std::size_t n, float scale) {
  RunningSum row;
  for (std::size_t begin = 0; begin < n; begin += kChunk)
    row.add(x + begin, std::min(kChunk, n - begin), scale);
  return row;
}

// out = weight * exp(z - lse), added to out with accumulate. out may be x, then not with is_large.
template <class T>
void weighted_softmax(const T* x, T* out, std::size_t n, float scale, LogSumExp lse, float weight,
                      bool accumulate, bool is_large) {
  const Floats factor = set(scale), max = set(finite_max(lse.max)), log_sum = set(lse.log_sum),
               w = set(weight);
  for_each_step(n, is_large, [&](std::size_t i, auto step) HWY_ATTR {
    const Floats e = exp_flushed(hn::Sub(hn::MulSub(step.load(x + i), factor, max), log_sum));
    step.store(accumulate ? hn::MulAdd(w, e, step.load(out + i)) : hn::Mul(w, e), out + i);
  });
}

// log sum exp z over the entries that are not among the `count` ascending `indices`; -inf where there is
// none. The maximum is theirs alone, so that a small rest beside a large entry keeps its digits.
template <class T>
double rest_log_sum_exp(const T* x, std::size_t n, float scale, const std::uint32_t* indices,
                        std::size_t count) {
  HWY_ALIGN float chunk[kChunk];
  const Floats factor = set(scale);
  RunningSum rest;
  std::size_t next = 0;
  for (std::size_t begin = 0; begin < n; begin += kChunk) {
    const std::size_t size = std::min(kChunk, n - begin);
    for_each_step(size, false, [&](std::size_t i, auto step) HWY_ATTR {
      step.store(hn::Mul(factor, step.load(x + begin + i)), chunk + i);
    });
    for (; next < count && indices[next] < begin + size; ++next) chunk[indices[next] - begin] = -HUGE_VALF;
    rest.add(chunk, size, 1.0f);
  }
  return static_cast<double>(finite_max(rest.max)) + std::log(rest.sum);
}

}  // namespace mixtape::HWY_NAMESPACE::logits
HWY_AFTER_NAMESPACE();
#endif  // include guard per target
