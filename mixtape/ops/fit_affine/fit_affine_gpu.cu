// A group per thread; what the search reads again and again lies in shared memory. The arithmetic is that of
// search_cpu.h, step by step.
#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/fit_affine/fit_affine_gpu_params.h"
#include "mixtape/ops/fit_affine/fit_plan.h"
#include "mixtape/ops/quantize/fit_range_gpu.h"

namespace mixtape {

constexpr int kLargestGroup = 128;
// Rows of weights are padded, so that neither threads nor columns meet in a bank.
constexpr int kFitMemory = kFitWeights + kLargestGroup;

struct FitPair {
  float scale, bias;
};

// See Sums of search_cpu.h.
struct FitSums {
  float error, p, r, qr, q, qq;
};

// See GroupSearch of search_cpu.h. Weight c of the group is w[c * stride].
struct FitSearch {
  int size, stride;
  float total, unit, inverse_unit, mean, low, high, largest, error;
  FitPair best;
};

struct FitUnit {
  float value, inverse;
};
MIXTAPE_DEVICE FitUnit fit_unit(float magnitude) {
  std::uint32_t exponent = bits_of(magnitude) >> 23;
  exponent = exponent < 7u ? 7u : exponent > 253u ? 253u : exponent;
  return FitUnit{float_of(exponent << 23), float_of((254u - exponent) << 23)};
}

template <class S>
MIXTAPE_DEVICE float fit_stored(const FitSearch& g, float v) {
  return to_f32(from_f32<S>(v * g.unit)) * g.inverse_unit;
}
MIXTAPE_DEVICE float fit_code(float largest, float v, FitPair to) {
  const float code = rint_f32((v - to.bias) / to.scale);
  return code > 0.0f ? (code < largest ? code : largest) : 0.0f;
}
MIXTAPE_DEVICE FitPair fit_usable(FitPair wanted, FitPair other) {
  return is_finite(wanted.scale) && is_finite(wanted.bias) && wanted.scale != 0.0f ? wanted : other;
}

MIXTAPE_DEVICE FitSums fit_sums(const FitSearch& g, Shared<const float> w, Shared<const float> h,
                                FitPair at) {
  FitSums s{0.0f, fit_code(g.largest, g.mean, at), 0.0f, 0.0f, 0.0f, 0.0f};
  MIXTAPE_UNROLL_4
  for (int c = 0; c < g.size; ++c) {
    const float v = w[c * g.stride], weight = h[c];
    const float q = fit_code(g.largest, v, at), from_p = q - s.p;
    const float r = v - (q * at.scale + at.bias);
    const float hr = weight * r, hq = weight * from_p;
    s.error += hr * r;
    s.r += hr;
    s.qr += hr * from_p;
    s.q += hq;
    s.qq += hq * from_p;
  }
  return s;
}

template <class S>
MIXTAPE_DEVICE FitPair fit_refit_bias(const FitSearch& g, const FitSums& s, FitPair at, float scale) {
  const float change = scale - at.scale;
  const float shift = (s.r - change * s.q) / g.total;
  return fit_usable(FitPair{scale, fit_stored<S>(g, at.bias + shift - change * s.p)}, at);
}
template <class S>
MIXTAPE_DEVICE FitPair fit_least_squares(const FitSearch& g, const FitSums& s, FitPair at) {
  const float moment = g.total * s.qq, determinant = moment - s.q * s.q;
  const float change = determinant > moment * 0x1p-20f ? (g.total * s.qr - s.q * s.r) / determinant : 0.0f;
  return fit_refit_bias<S>(g, s, at, fit_stored<S>(g, at.scale + change));
}

template <class S>
MIXTAPE_DEVICE void fit_follow(FitSearch& g, Shared<const float> w, Shared<const float> h, FitPair at,
                               int turns) {
  for (int turn = 0; turn < turns; ++turn) {
    const FitSums s = fit_sums(g, w, h, at);
    if (s.error < g.error) {
      g.error = s.error;
      g.best = at;
    }
    if (turn + 1 < turns) at = fit_least_squares<S>(g, s, at);
  }
}

template <class S>
MIXTAPE_DEVICE FitPair fit_between(const FitSearch& g, float from, float to) {
  const float bias = fit_stored<S>(g, abs_f32(from) <= abs_f32(to) ? from : to);
  const float up = to - bias, down = from - bias;
  const float range = abs_f32(up) >= abs_f32(down) ? up : down;
  return fit_usable(FitPair{fit_stored<S>(g, range / g.largest), bias}, g.best);
}

template <class S>
MIXTAPE_DEVICE void fit_nudge(const FitAffineGpuParams& p, FitSearch& g, Shared<const float> w,
                              Shared<const float> h) {
  const FitPair at = g.best;
  const FitSums s = fit_sums(g, w, h, at);
  for (int k = -kNudges; k <= kNudges; ++k) {
    if (k == 0) continue;
    const float scale = at.scale * (1.0f + static_cast<float>(k) * p.nudge);
    fit_follow<S>(g, w, h, fit_refit_bias<S>(g, s, at, fit_stored<S>(g, scale)), 1);
  }
}

template <class S>
MIXTAPE_DEVICE void fit_search(const FitAffineGpuParams& p, FitSearch& g, Shared<const float> w,
                               Shared<const float> h) {
  fit_follow<S>(g, w, h, g.best, kTurns);
  MIXTAPE_ROLLED
  for (int start = 0; start < kFractions * kFractions; ++start) {
    const float down = 1.0f - static_cast<float>(start / kFractions) * p.drop;
    const float up = 1.0f - static_cast<float>(start % kFractions) * p.drop;
    const float from = g.mean + (g.low - g.mean) * down, to = g.mean + (g.high - g.mean) * up;
    fit_follow<S>(g, w, h, fit_between<S>(g, from, to), kTurns);
  }
  fit_follow<S>(g, w, h, g.best, kLastTurns);
  fit_nudge<S>(p, g, w, h);
}

// The block's importance, brought near 1, and its sum. Blocks of an expert's first rows report what is no
// importance.
MIXTAPE_DEVICE float load_importance(const FitAffineGpuParams& p, Global<const float> importance,
                                     std::int64_t first, bool reports, Shared<float> raw, Shared<float> h,
                                     Global<std::uint64_t> errors) {
  for (int c = thread_x(); c < p.group_size; c += threads_x()) {
    const float v = p.has_importance != 0 ? importance[first + c] : 1.0f;
    raw[c] = v;
    if (reports && !(v >= 0.0f && is_finite(v))) report_weight(errors, first + c, v);
  }
  barrier();
  float largest = 0.0f, total = 0.0f;
  for (int c = 0; c < p.group_size; ++c) largest = raw[c] > largest ? static_cast<float>(raw[c]) : largest;
  const float inverse = fit_unit(largest).inverse;
  for (int c = 0; c < p.group_size; ++c) total += raw[c] * inverse;
  for (int c = thread_x(); c < p.group_size; c += threads_x())
    h[c] = largest > 0.0f ? raw[c] * inverse : 1.0f;
  return largest > 0.0f ? total : static_cast<float>(p.group_size);
}

// MLX's rule as it is stored. Not usable where a weight or the rule is refused, which is reported.
template <class S>
MIXTAPE_DEVICE FitPair mlx_rule(const FitAffineGpuParams& p, Shared<const float> w, int stride,
                                std::int64_t position, Global<std::uint64_t> errors) {
  float low = w[0], high = low;
  for (int c = 0; c < p.group_size; ++c) {
    const float v = w[c * stride];
    low = v < low ? v : low;
    high = v > high ? v : high;
    if (is_finite(v) && is_finite(high - low)) continue;
    report_weight(errors, position + c, v);
    return FitPair{0.0f, 0.0f};
  }
  const GroupFit fit = fit_range_gpu(p.bits, false, low, high > 0.0f ? high : 0.0f);
  const FitPair stored{to_f32(from_f32<S>(fit.scale)), to_f32(from_f32<S>(fit.bias))};
  if (is_finite(stored.scale) && is_finite(stored.bias)) return stored;
  report_weight(errors, position, 0.0f);
  return FitPair{0.0f, 0.0f};
}

// Unit, mean and range of the weights that count; brings them near 1, the others to 0.
MIXTAPE_DEVICE void prepare_search(FitSearch& g, Shared<float> w, Shared<const float> h, FitPair first) {
  float counted = 0.0f, all = 0.0f;
  for (int c = 0; c < g.size; ++c) {
    const float v = abs_f32(w[c * g.stride]);
    all = v > all ? v : all;
    if (h[c] > 0.0f) counted = v > counted ? v : counted;
  }
  const float least = all * kLeastCounted;
  const FitUnit unit = fit_unit(counted > least ? counted : least);
  g.unit = unit.value;
  g.inverse_unit = unit.inverse;
  g.best = FitPair{first.scale * unit.inverse, first.bias * unit.inverse};
  float sum = 0.0f;
  for (int c = 0; c < g.size; ++c) {
    const bool counts = h[c] > 0.0f;
    const float v = counts ? w[c * g.stride] * unit.inverse + 0.0f : 0.0f;
    w[c * g.stride] = v;
    if (!counts) continue;
    sum += h[c] * v;
    g.low = v < g.low ? v : g.low;
    g.high = v > g.high ? v : g.high;
  }
  g.mean = sum / g.total;
}

MIXTAPE_DEVICE void store_group(Global<const float> w, const FitSearch& g, int bits, FitPair fit,
                                Global<std::uint32_t> words) {
  std::uint64_t pending = 0;
  int filled = 0, next = 0;
  for (int c = 0; c < g.size; ++c) {
    const auto code = static_cast<std::uint32_t>(fit_code(g.largest, w[c], fit));
    pending |= static_cast<std::uint64_t>(code) << filled;
    filled += bits;
    if (filled < 32) continue;
    words[next++] = static_cast<std::uint32_t>(pending);
    pending >>= 32;
    filled -= 32;
  }
}

template <class S>
MIXTAPE_DEVICE void fit_affine(const FitAffineGpuParams& p, Global<const float> weight,
                               Global<const float> importance, Global<std::uint32_t> words, Global<S> scales,
                               Global<S> biases, Global<std::uint64_t> errors, Shared<float> w,
                               Shared<float> raw, Shared<float> h) {
  const std::int64_t groups = p.cols / p.group_size, group = block_x() % groups;
  const std::int64_t row_block = block_x() / groups % p.row_blocks,
                     expert = block_x() / groups / p.row_blocks;
  const int threads = threads_x(), stride = threads + 1;
  const std::int64_t first = row_block * threads;
  const int rows = static_cast<int>(p.rows - first < threads ? p.rows - first : threads);
  const Global<const float> block = weight + (expert * p.rows + first) * p.cols + group * p.group_size;
  for (int i = thread_x(); i < rows * p.group_size; i += threads) {
    const int row = i / p.group_size, c = i % p.group_size;
    w[c * stride + row] = block[row * p.cols + c];
  }
  FitSearch g;
  g.size = p.group_size;
  g.stride = stride;
  g.largest = static_cast<float>((1 << p.bits) - 1);
  g.low = g.error = float_of(0x7f800000u);
  g.high = -g.low;
  g.total =
      load_importance(p, importance, expert * p.cols + group * p.group_size, row_block == 0, raw, h, errors);
  barrier();
  if (thread_x() >= rows) return;
  const std::int64_t row = expert * p.rows + first + thread_x();
  const std::int64_t position = row * p.cols + group * p.group_size;
  const std::int64_t importances = p.has_importance != 0 ? p.experts * p.cols : 0;
  const Shared<float> mine = w + thread_x();
  const FitPair rule = mlx_rule<S>(p, mine, stride, importances + position, errors);
  if (rule.scale == 0.0f) return;
  prepare_search(g, mine, h, rule);
  fit_search<S>(p, g, mine, h);
  const FitPair fit{g.best.scale * g.unit, g.best.bias * g.unit};
  scales[row * groups + group] = from_f32<S>(fit.scale);
  biases[row * groups + group] = from_f32<S>(fit.bias);
  store_group(weight + position, g, p.bits, fit, words + position / 32 * p.bits);
}

#define FIT_AFFINE(S)                                                                           \
  MIXTAPE_KERNEL(fit_affine_##S, 256, FitAffineGpuParams p, Global<const float> weight,         \
                 Global<const float> importance, Global<std::uint32_t> words, Global<S> scales, \
                 Global<S> biases, Global<std::uint64_t> errors) {                              \
    await_earlier();                                                                            \
    MIXTAPE_SHARED(float, w, kFitMemory);                                                       \
    MIXTAPE_SHARED(float, raw, kLargestGroup);                                                  \
    MIXTAPE_SHARED(float, h, kLargestGroup);                                                    \
    fit_affine<S>(p, weight, importance, words, scales, biases, errors, w, raw, h);             \
  }
MIXTAPE_VALUE_KERNELS(FIT_AFFINE)

}  // namespace mixtape
