#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/gptq/gptq_gpu_params.h"

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

// 32 codes, one in each lane, as `bits` words, one in each of the first lanes.
MIXTAPE_DEVICE std::uint32_t pack_lanes(std::uint32_t code, int bits) {
  std::uint32_t word = 0;
  for (int from = 0; from < kLanes; ++from) {
    const std::uint32_t c = lane_shuffle(code, from);
    const int shift = from * bits - 32 * lane();  // of its lowest bit in this lane's word
    if (shift >= 0 && shift < 32) word |= c << shift;
    if (shift < 0 && shift > -32) word |= c >> -shift;
  }
  return word;
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
  const std::int64_t row = matrix * p.rows + of_matrix, groups = p.cols / p.group_size;
  const float largest = static_cast<float>((1 << p.bits) - 1);
  GptqElement mine[2];
  float code[2], error[2];
  MIXTAPE_UNROLL
  for (int part = 0; part < 2; ++part) {
    const int col = part * kLanes + lane();
    mine[part] = GptqElement{0.0f, 0.0f, square[col * (kGptqCols + 1) + col], 0.0f, 0.0f};
    if (col >= p.width) continue;
    const std::int64_t group = row * groups + (p.begin + col) / p.group_size;
    mine[part].w = w[row * p.cols + p.begin + col];
    mine[part].scale = to_f32(scales[group]);
    mine[part].bias = to_f32(biases[group]);
    if (p.begin > 0) mine[part].sum = sums[row * p.width + col];
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
    const std::uint32_t word = pack_lanes(static_cast<std::uint32_t>(code[part]), p.bits);
    const std::int64_t chunk = (row * p.cols + p.begin) / kLanes + part;
    if (lane() < p.bits) words[chunk * p.bits + lane()] = word;
  }
}

#define GPTQ_BLOCK(S)                                                                                     \
  MIXTAPE_KERNEL(gptq_block_##S, 256, GptqGpuParams p, Global<const float> w, Global<const float> factor, \
                 Global<const S> scales, Global<const S> biases, Global<const float> sums,                \
                 Global<float> errors, Global<std::uint32_t> words) {                                     \
    MIXTAPE_SHARED(float, square, kGptqCols*(kGptqCols + 1));                                             \
    gptq_block<S>(p, w, factor, scales, biases, sums, errors, words, square);                             \
  }
MIXTAPE_VALUE_KERNELS(GPTQ_BLOCK)

}  // namespace mixtape
