#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/gptq/gptq_gpu_params.h"
#include "mixtape/ops/quantize/codes_gpu.h"

namespace mixtape {

// The square of the factor on the diagonal, transposed: what column i gives to those behind it lies in a row.
// Columns that a last block lacks get 1 on the diagonal.
MIXTAPE_DEVICE void load_square(const GptqGpuParams& p, Global<const float> factor, Shared<float> square) {
  for (int at = flat_thread(); at < kGptqCols * kGptqCols; at += block_threads()) {
    const int i = at / kGptqCols, j = at % kGptqCols;
    const bool is_inside = j <= i && i < p.width;
    square[j * (kGptqCols + 1) + i] =
        is_inside ? static_cast<float>(factor[(p.begin + i) * p.cols + p.begin + j]) : (i == j ? 1.0f : 0.0f);
  }
}

// A column of a row. Each lane has two: the block's lane-th and (32 + lane)-th.
struct GptqElement {
  float w, sum, diagonal, scale, bias;

  MIXTAPE_DEVICE float code(float largest) const {
    const float t = w + sum / diagonal;
    const float code = rint_f32((t - bias) / scale);
    if (scale == 0.0f || !(code > 0.0f)) return 0.0f;  // nor is a NaN
    return code < largest ? code : largest;
  }
  MIXTAPE_DEVICE float error(float code) const { return w - fma_f32(code, scale, bias); }
};

// Column `col` of the block in a row of the weight; past the block's end one whose code is 0.
template <class S>
MIXTAPE_DEVICE GptqElement load_element(const GptqGpuParams& p, std::int64_t row, int col, float diagonal,
                                        Global<const float> w, Global<const S> scales, Global<const S> biases,
                                        Global<const float> sums) {
  if (col >= p.width) return GptqElement{0.0f, 0.0f, diagonal, 0.0f, 0.0f};
  const std::int64_t at = row * p.cols + p.begin + col, group = at / p.group_size;
  const float sum = p.begin > 0 ? static_cast<float>(sums[row * p.width + col]) : 0.0f;
  return GptqElement{w[at], sum, diagonal, to_f32(scales[group]), to_f32(biases[group])};
}

// Writes 32 codes from column `at` of all rows on, one in each lane.
MIXTAPE_DEVICE void store_lanes(Global<std::uint32_t> words, std::int64_t at, int bits, float code) {
  std::uint64_t eight = 0;  // of lanes 8 * lane and on, in the first four lanes
  MIXTAPE_UNROLL
  for (int i = 0; i < kCodesAtOnce; ++i) {
    const auto c = static_cast<std::uint64_t>(lane_shuffle(code, lane() % 4 * kCodesAtOnce + i));
    eight |= c << (i * bits);
  }
  store_codes(words, at / kCodesAtOnce + lane() % 4, lane() < 4, bits, eight);
}

// A row per warp.
template <class S>
MIXTAPE_DEVICE void gptq_block(const GptqGpuParams& p, Global<const float> w, Global<const float> factor,
                               Global<const S> scales, Global<const S> biases, Global<const float> sums,
                               Global<float> errors, Global<std::uint32_t> words, Shared<float> square) {
  const std::int64_t blocks = (p.rows + kGptqRows - 1) / kGptqRows, matrix = block_x() / blocks;
  load_square(p, factor + matrix * p.cols * p.cols, square);
  barrier();
  const std::int64_t of_matrix = (block_x() - matrix * blocks) * kGptqRows + thread_y();
  if (of_matrix >= p.rows) return;
  const std::int64_t row = matrix * p.rows + of_matrix;
  const float largest = static_cast<float>((1 << p.bits) - 1);
  GptqElement mine[2];
  float code[2], error[2];
  MIXTAPE_UNROLL
  for (int part = 0; part < 2; ++part) {
    const int col = part * kLanes + lane();
    mine[part] = load_element(p, row, col, square[col * (kGptqCols + 1) + col], w, scales, biases, sums);
  }
  MIXTAPE_UNROLL
  for (int part = 0; part < 2; ++part) {
    if (part * kLanes >= p.width) break;
    for (int i = 0; i < kLanes; ++i) {
      const float c = mine[part].code(largest), e = mine[part].error(c);
      if (lane() == i) {
        code[part] = c;
        error[part] = e;
      }
      const float given = lane_shuffle(e, i);
      const Shared<float> l = square + (part * kLanes + i) * (kGptqCols + 1);
      // Columns before i took their codes: what they get here is not read again.
      MIXTAPE_UNROLL
      for (int other = part; other < 2; ++other)
        mine[other].sum = fma_f32(given, l[other * kLanes + lane()], mine[other].sum);
    }
    errors[row * p.cols + p.begin + part * kLanes + lane()] = error[part];
    store_lanes(words, row * p.cols + p.begin + part * kLanes, p.bits, code[part]);
  }
}

#define GPTQ_BLOCK(S)                                                                                     \
  MIXTAPE_KERNEL(gptq_block_##S, 256, GptqGpuParams p, Global<const float> w, Global<const float> factor, \
                 Global<const S> scales, Global<const S> biases, Global<const float> sums,                \
                 Global<float> errors, Global<std::uint32_t> words) {                                     \
    await_earlier();                                                                                      \
    MIXTAPE_SHARED(float, square, kGptqCols*(kGptqCols + 1));                                             \
    gptq_block<S>(p, w, factor, scales, biases, sums, errors, words, square);                             \
  }
MIXTAPE_VALUE_KERNELS(GPTQ_BLOCK)

}  // namespace mixtape
