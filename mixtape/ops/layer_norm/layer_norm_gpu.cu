#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/backend/gpu/partials.h"
#include "mixtape/ops/layer_norm/layer_norm_params.h"

namespace mixtape {

// A row per threads_x threads, read three times: for its mean, the squares around it, and the result.
template <class T>
MIXTAPE_DEVICE void layer_norm_forward(const LayerNormParams& p, Global<const T> x, Global<const T> w,
                                       Global<const T> b, Global<T> y, Global<float> stats,
                                       Shared<float> scratch) {
  const std::int64_t row = row_index(), cols = row < p.rows ? p.cols : 0, at = row * p.cols;
  const float count = static_cast<float>(p.cols);
  float sum = 0.0f, squares = 0.0f;
  for (std::int64_t c = thread_x(); c < cols; c += threads_x()) sum += to_f32(x[at + c]);
  const float mean = row_sum(sum, scratch) / count;
  for (std::int64_t c = thread_x(); c < cols; c += threads_x()) {
    const float d = to_f32(x[at + c]) - mean;
    squares = fma_f32(d, d, squares);
  }
  const float rstd = 1.0f / sqrt_f32(row_sum(squares, scratch) / count + p.eps);
  for (std::int64_t c = thread_x(); c < cols; c += threads_x()) {
    float v = (to_f32(x[at + c]) - mean) * rstd;
    if (p.has_weight != 0) v *= to_f32(w[c]);
    if (p.has_bias != 0) v += to_f32(b[c]);
    y[at + c] = from_f32<T>(v);
  }
  if (cols == 0 || thread_x() != 0) return;
  stats[2 * row] = mean;
  stats[2 * row + 1] = rstd;
}

// A block takes row_block rows, one after the other; its shares of dw and db grow in memory. dx comes last: it
// may overwrite dy.
template <class T>
MIXTAPE_DEVICE void layer_norm_backward(const LayerNormParams& p, Global<const T> x,
                                        Global<const float> stats, Global<const T> dy, Global<const T> w,
                                        Global<T> dx, Global<float> dw_shares, Global<float> db_shares,
                                        Shared<float> scratch) {
  const std::int64_t begin = block_x() * p.row_block, share = block_x() * p.cols;
  const std::int64_t end = begin + p.row_block < p.rows ? begin + p.row_block : p.rows;
  const float count = static_cast<float>(p.cols);
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * p.cols;
    const float mean = stats[2 * row], rstd = stats[2 * row + 1];
    float sum_g = 0.0f, sum_gh = 0.0f;
    for (std::int64_t c = thread_x(); c < p.cols; c += threads_x()) {
      const float d = to_f32(dy[at + c]), h = (to_f32(x[at + c]) - mean) * rstd;
      const float g = p.has_weight != 0 ? d * to_f32(w[c]) : d;
      sum_g += g;
      sum_gh = fma_f32(g, h, sum_gh);
      if ((p.wanted & kLayerNormDw) != 0)
        dw_shares[share + c] = fma_f32(d, h, row == begin ? 0.0f : static_cast<float>(dw_shares[share + c]));
      if ((p.wanted & kLayerNormDb) != 0)
        db_shares[share + c] = d + (row == begin ? 0.0f : static_cast<float>(db_shares[share + c]));
    }
    if ((p.wanted & kLayerNormDx) == 0) continue;
    const float mean_g = row_sum(sum_g, scratch) / count, mean_gh = row_sum(sum_gh, scratch) / count;
    for (std::int64_t c = thread_x(); c < p.cols; c += threads_x()) {
      const float h = (to_f32(x[at + c]) - mean) * rstd;
      const float g = p.has_weight != 0 ? to_f32(dy[at + c]) * to_f32(w[c]) : to_f32(dy[at + c]);
      const float d = rstd * fma_f32(-h, mean_gh, g - mean_g);
      dx[at + c] = from_f32<T>((p.accumulate & kLayerNormDx) != 0 ? to_f32(dx[at + c]) + d : d);
    }
  }
}

#define KERNELS(T)                                                                                     \
  MIXTAPE_KERNEL(layer_norm_forward_##T, 256, LayerNormParams p, Global<const T> x, Global<const T> w, \
                 Global<const T> b, Global<T> y, Global<float> stats) {                                \
    await_earlier();                                                                                   \
    MIXTAPE_SHARED(float, scratch, 32);                                                                \
    layer_norm_forward<T>(p, x, w, b, y, stats, scratch);                                              \
  }                                                                                                    \
  MIXTAPE_KERNEL(layer_norm_backward_##T, 256, LayerNormParams p, Global<const T> x,                   \
                 Global<const float> stats, Global<const T> dy, Global<const T> w, Global<T> dx,       \
                 Global<float> dw_shares, Global<float> db_shares) {                                   \
    await_earlier();                                                                                   \
    MIXTAPE_SHARED(float, scratch, 32);                                                                \
    layer_norm_backward<T>(p, x, stats, dy, w, dx, dw_shares, db_shares, scratch);                     \
  }                                                                                                    \
  MIXTAPE_KERNEL(layer_norm_backward_shares_##T, 256, PartialsParams p, Global<const float> shares,    \
                 Global<T> out) {                                                                      \
    await_earlier();                                                                                   \
    MIXTAPE_SHARED(float, scratch, kPartialScratch);                                                   \
    add_partials<T>(p, shares, out, scratch);                                                          \
  }
MIXTAPE_VALUE_KERNELS(KERNELS)

}  // namespace mixtape
