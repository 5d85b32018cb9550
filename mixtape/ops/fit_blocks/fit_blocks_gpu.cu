// A block per thread; what the search reads again and again lies in shared memory.
#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/fit_blocks/fit_blocks_gpu_params.h"
#include "mixtape/ops/fit_blocks/fit_blocks_plan.h"
#include "mixtape/ops/quantize/fit_range_gpu.h"

namespace mixtape {
namespace block_fit {

using Real = float;
using Choice = bool;
MIXTAPE_DEVICE Real real(float v) { return v; }
MIXTAPE_DEVICE Real rounded(Real v) { return rint_f32(v); }
MIXTAPE_DEVICE Real magnitude(Real v) { return abs_f32(v); }
MIXTAPE_DEVICE Choice less(Real a, Real b) { return a < b; }
MIXTAPE_DEVICE Real choose(Choice c, Real yes, Real no) { return c ? yes : no; }
MIXTAPE_DEVICE Real least(Real a, Real b) { return a < b ? a : b; }
MIXTAPE_DEVICE Real most(Real a, Real b) { return b < a ? a : b; }
MIXTAPE_DEVICE Real within(Real v, float lowest, float highest) { return most(least(v, highest), lowest); }

struct Unit {
  float value, inverse;
};
MIXTAPE_DEVICE Unit unit_of(float magnitude) {
  std::uint32_t exponent = bits_of(magnitude) >> 23;
  exponent = exponent < 7u ? 7u : exponent > 253u ? 253u : exponent;
  return Unit{float_of(exponent << 23), float_of((254u - exponent) << 23)};
}

struct BlockWeights {
  Shared<const float> w;  // of this thread's row: column i is w[i * stride]
  Shared<const float> h;
  int stride;
  Unit unit;
  Real spread;

  MIXTAPE_DEVICE Real weight(int i) const { return w[i * stride]; }
  MIXTAPE_DEVICE float importance(int i) const { return h[i]; }
  MIXTAPE_DEVICE Real share(int i) const { return h[i] * sqrt_f32(spread + weight(i) * weight(i)); }
  MIXTAPE_DEVICE Real as_f16(Real v) const { return to_f32(from_f32<f16>(v * unit.value)) * unit.inverse; }
};

#define FIT_FUNCTION MIXTAPE_DEVICE
#include "mixtape/ops/fit_blocks/search.inc"
#undef FIT_FUNCTION

// The block's importance as the host brings it near 1. Blocks of an expert's first rows report what is no importance.
MIXTAPE_DEVICE void load_importance(const FitBlocksGpuParams& p, Global<const float> importance,
                                    std::int64_t first, bool reports, Shared<float> raw, Shared<float> h,
                                    Global<std::uint64_t> errors) {
  const int size = p.shape.groups * p.shape.group_size;
  for (int c = thread_x(); c < size; c += threads_x()) {
    const float v = p.has_importance != 0 ? importance[first + c] : 1.0f;
    raw[c] = v;
    if (reports && !(v >= 0.0f && is_finite(v))) report_weight(errors, first + c, v);
  }
  barrier();
  float largest = 0.0f;
  for (int c = 0; c < size; ++c) largest = raw[c] > largest ? static_cast<float>(raw[c]) : largest;
  const float inverse = unit_of(largest).inverse;
  for (int c = thread_x(); c < size; c += threads_x()) {
    const int group = c / p.shape.group_size * p.shape.group_size;
    bool counts = false;
    for (int i = group; i < group + p.shape.group_size; ++i) counts = counts || raw[i] * inverse > 0.0f;
    h[c] = !(largest > 0.0f) ? 1.0f : counts ? raw[c] * inverse : kNoImportance;
  }
}

// Reports the first weight of the block that can't be fitted.
MIXTAPE_DEVICE bool is_bad(const FitBlocksGpuParams& p, Shared<const float> w, int stride,
                           std::int64_t position, Global<std::uint64_t> errors) {
  float low = 0.0f, high = 0.0f;
  for (int c = 0; c < p.shape.groups * p.shape.group_size; ++c) {
    const float v = w[c * stride];
    if (c % p.shape.group_size == 0) low = high = v;
    low = v < low ? v : low;
    high = v > high ? v : high;
    if (is_finite(v) && is_finite(high - low)) continue;
    report_weight(errors, position + c, v);
    return true;
  }
  return false;
}

// Brings the weights that count near 1, the others to 0.
MIXTAPE_DEVICE Unit bring_near(int size, Shared<float> w, Shared<const float> h, int stride) {
  float largest = 0.0f;
  for (int c = 0; c < size; ++c) {
    const float v = abs_f32(w[c * stride]);
    if (h[c] > 0.0f) largest = v > largest ? v : largest;
  }
  const Unit unit = unit_of(largest);
  for (int c = 0; c < size; ++c) w[c * stride] = h[c] > 0.0f ? w[c * stride] * unit.inverse + 0.0f : 0.0f;
  return unit;
}

MIXTAPE_DEVICE float spread_of(int size, Shared<const float> w, int stride) {
  float sum = 0.0f;
  for (int c = 0; c < size; ++c) sum = sum + w[c * stride] * w[c * stride];
  const float spread = sum * (2.0f / static_cast<float>(size));
  return spread > 0.0f ? spread : 1.0f;
}

struct CodeStream {
  Global<std::uint32_t> words;
  std::uint64_t pending;
  int filled, next;

  MIXTAPE_DEVICE void put(std::uint32_t code, int bits) {
    pending |= static_cast<std::uint64_t>(code) << filled;
    filled += bits;
    if (filled < 32) return;
    words[next++] = static_cast<std::uint32_t>(pending);
    pending >>= 32;
    filled -= 32;
  }
};

MIXTAPE_DEVICE void encode_block_group(const BlockShape& p, Global<const float> w, float scale, float bias,
                                       CodeStream& codes) {
  if (p.has_biases == 0) bias = scale * -p.zero_code;
  const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
  for (int c = 0; c < p.group_size; ++c) {
    const float code = rint_f32((w[c] - bias) * inverse);
    codes.put(static_cast<std::uint32_t>(code > 0.0f ? (code < p.largest ? code : p.largest) : 0.0f), p.bits);
  }
}

}  // namespace block_fit

MIXTAPE_KERNEL(fit_blocks_forward, 256, FitBlocksGpuParams p, Global<const float> weight,
               Global<const float> importance, Global<std::uint32_t> words, Global<float> scales,
               Global<float> biases, Global<float> sub_scales, Global<float> sub_biases,
               Global<std::uint64_t> errors) {
  await_earlier();
  MIXTAPE_SHARED(float, w, kFitBlockMemory);
  MIXTAPE_SHARED(float, raw, 256);
  MIXTAPE_SHARED(float, h, 256);
  const BlockShape& shape = p.shape;
  const int size = shape.groups * shape.group_size, threads = threads_x(), stride = threads + 1;
  const std::int64_t blocks = p.cols / size, b = block_x() % blocks;
  const std::int64_t row_block = block_x() / blocks % p.row_blocks,
                     expert = block_x() / blocks / p.row_blocks;
  const std::int64_t first = row_block * threads;
  const int rows = static_cast<int>(p.rows - first < threads ? p.rows - first : threads);
  const Global<const float> from = weight + (expert * p.rows + first) * p.cols + b * size;
  for (int i = thread_x(); i < rows * size; i += threads) {
    const int row = i / size, c = i % size;
    w[c * stride + row] = from[row * p.cols + c];
  }
  block_fit::load_importance(p, importance, expert * p.cols + b * size, row_block == 0, raw, h, errors);
  barrier();
  if (thread_x() >= rows) return;
  const std::int64_t row = expert * p.rows + first + thread_x(), position = row * p.cols + b * size;
  const std::int64_t importances = p.has_importance != 0 ? p.experts * p.cols : 0;
  const Shared<float> mine = w + thread_x();
  if (block_fit::is_bad(p, mine, stride, importances + position, errors)) return;
  const block_fit::Unit unit = block_fit::bring_near(size, mine, h, stride);
  const block_fit::BlockWeights weights{mine, h, stride, unit, block_fit::spread_of(size, mine, stride)};
  const block_fit::BlockState fit = block_fit::fit_block(shape, weights, p.searches != 0);
  const float d = fit.d * unit.value, e = fit.e * unit.value;
  if (!is_finite(d) || !is_finite(e)) return report_weight(errors, importances + position, 0.0f);
  const std::int64_t block = row * blocks + b;
  scales[block] = d;
  if (shape.has_biases != 0) biases[block] = e;
  block_fit::CodeStream codes{words + position / 32 * shape.bits, 0, 0, 0};
  for (int j = 0; j < shape.groups; ++j) {
    if (shape.has_sub_scales != 0) sub_scales[block * shape.groups + j] = fit.sub_scales[j];
    if (shape.has_sub_biases != 0) sub_biases[block * shape.groups + j] = fit.sub_biases[j];
    block_fit::encode_block_group(shape, weight + position + j * shape.group_size, d * fit.sub_scales[j],
                                  e * fit.sub_biases[j], codes);
  }
}

}  // namespace mixtape
