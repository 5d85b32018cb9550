// Products of a few rows with a quantized weight: codes are read once and decoded in registers, where a decoded weight
// would take eight times their bytes of memory's time.
#include "mixtape/ops/quantize/codes_gpu.h"
#include "mixtape/ops/quantized_matmul/few_rows_gpu_params.h"

namespace mixtape {

// A block makes kColumnsAtOnce columns of y of up to kRowsAtOnce rows: its threads share out k, eight weights at a time.
template <class T, class S, class Y, int Bits>
MIXTAPE_DEVICE void few_rows(const FewRowsParams& p, Global<const T> x, Global<const std::uint32_t> words,
                             Global<const S> scales, Global<const S> biases, Global<Y> y,
                             Global<const Y> addend, Shared<float> sums) {
  const std::int64_t chunks = p.k / kCodesAtOnce, column = block_x() * kColumnsAtOnce,
                     row = block_y() * kRowsAtOnce;
  const int columns = p.n - column < kColumnsAtOnce ? static_cast<int>(p.n - column) : kColumnsAtOnce;
  const int rows = p.rows - row < kRowsAtOnce ? static_cast<int>(p.rows - row) : kRowsAtOnce;
  float sum[kRowsAtOnce][kColumnsAtOnce] = {};
  for (std::int64_t c = thread_x(); c < chunks; c += threads_x()) {
    std::uint64_t codes[kColumnsAtOnce];
    float scale[kColumnsAtOnce], bias[kColumnsAtOnce];
    MIXTAPE_UNROLL
    for (int j = 0; j < kColumnsAtOnce; ++j) {
      if (j >= columns) break;
      const std::int64_t chunk = (column + j) * chunks + c;
      codes[j] = load_codes(words, chunk, Bits);
      scale[j] = to_f32(scales[chunk >> p.group_shift]);
      bias[j] = to_f32(biases[chunk >> p.group_shift]);
    }
    float in[kRowsAtOnce][kCodesAtOnce];
    MIXTAPE_UNROLL
    for (int r = 0; r < kRowsAtOnce; ++r) {
      if (r < rows) load_eight(x + (row + r) * p.k, c * kCodesAtOnce, p.k, in[r]);
    }
    MIXTAPE_UNROLL
    for (int j = 0; j < kColumnsAtOnce; ++j) {
      if (j >= columns) break;
      float w[kCodesAtOnce];
      MIXTAPE_UNROLL
      for (int i = 0; i < kCodesAtOnce; ++i) w[i] = fma_f32(code_at(codes[j], i, Bits), scale[j], bias[j]);
      MIXTAPE_UNROLL
      for (int r = 0; r < kRowsAtOnce; ++r) {
        if (r >= rows) break;
        MIXTAPE_UNROLL
        for (int i = 0; i < kCodesAtOnce; ++i) sum[r][j] = fma_f32(in[r][i], w[i], sum[r][j]);
      }
    }
  }
  MIXTAPE_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    MIXTAPE_UNROLL
    for (int j = 0; j < kColumnsAtOnce; ++j) {
      const float all = lane_sum(sum[r][j]);
      if (lane() == 0) sums[(warp() * kRowsAtOnce + r) * kColumnsAtOnce + j] = all;
    }
  }
  barrier();
  const int r = thread_x() / kColumnsAtOnce, j = thread_x() % kColumnsAtOnce;
  if (r >= rows || j >= columns) return;
  float all = 0.0f;
  for (int w = 0; w < block_threads() / kLanes; ++w) all += sums[(w * kRowsAtOnce + r) * kColumnsAtOnce + j];
  const std::int64_t at = (row + r) * p.n + column + j;
  y[at] = from_f32<Y>(p.has_addend != 0 ? to_f32(addend[at]) + all : all);
}

#define FEW_ROWS(BITS, T, S, Y)                                                                \
  MIXTAPE_KERNEL(quantized_few_rows_##T##_##S##_##Y##_##BITS, kFewThreads, FewRowsParams p,    \
                 Global<const T> x, Global<const std::uint32_t> words, Global<const S> scales, \
                 Global<const S> biases, Global<Y> y, Global<const Y> addend) {                \
    await_earlier();                                                                           \
    MIXTAPE_SHARED(float, sums, kFewThreads / kLanes * kRowsAtOnce * kColumnsAtOnce);          \
    few_rows<T, S, Y, BITS>(p, x, words, scales, biases, y, addend, sums);                     \
  }
MIXTAPE_CODE_WIDTHS(FEW_ROWS, f32, f32, f32)
MIXTAPE_CODE_WIDTHS(FEW_ROWS, bf16, bf16, bf16)
MIXTAPE_CODE_WIDTHS(FEW_ROWS, bf16, f32, bf16)
MIXTAPE_CODE_WIDTHS(FEW_ROWS, bf16, bf16, f32)
MIXTAPE_CODE_WIDTHS(FEW_ROWS, bf16, f32, f32)
MIXTAPE_CODE_WIDTHS(FEW_ROWS, f16, f16, f16)
MIXTAPE_CODE_WIDTHS(FEW_ROWS, f16, f16, f32)

}  // namespace mixtape
