#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/cholesky/cholesky_gpu_params.h"

namespace mixtape {

// 256 columns of a row per block.
MIXTAPE_KERNEL(cholesky_copy_lower, 256, CholeskyParams p, Global<const float> h, Global<float> factor) {
  await_earlier();
  const std::int64_t parts = (p.size + 255) / 256, line = block_x() / parts;
  const std::int64_t row = line % p.size, col = (block_x() - line * parts) * 256 + thread_x();
  if (col >= p.size) return;
  const std::int64_t at = line * p.size + col;
  factor[at] = col <= row ? static_cast<float>(h[at]) : 0.0f;
}

constexpr int kCholeskyStride = kCholeskyBlock + 1;  // a column's elements lie in different banks

// As the contract says; once a pivot is bad the others don't count.
MIXTAPE_DEVICE float note_pivot(float pivot, float min_pivot) {
  if (!(min_pivot > 0.0f)) return min_pivot;
  const float found = pivot + (pivot - pivot);  // NaN for an infinite one
  return found >= min_pivot ? min_pivot : found;
}

// The square on the diagonal, one matrix per block.
MIXTAPE_KERNEL(cholesky_diagonal, 256, CholeskyGpuParams p, Global<float> factor, Global<float> min_pivots) {
  await_earlier();
  MIXTAPE_SHARED(float, square, kCholeskyBlock* kCholeskyStride);
  const Global<float> first = factor + ((block_x() * p.size + p.begin) * p.size + p.begin);
  for (int at = thread_x(); at < p.rows * p.rows; at += 256) {
    const int i = at / p.rows, j = at % p.rows;
    square[i * kCholeskyStride + j] = j <= i ? static_cast<float>(first[i * p.size + j]) : 0.0f;
  }
  barrier();
  float min_pivot = p.is_first != 0 ? float_of(0x7f800000u) : static_cast<float>(min_pivots[block_x()]);
  for (int n = p.rows - 1; n >= 0; --n) {
    const float pivot = square[n * kCholeskyStride + n], root = sqrt_f32(pivot);
    min_pivot = note_pivot(pivot, min_pivot);
    barrier();
    for (int j = thread_x(); j <= n; j += 256) {
      const float v = square[n * kCholeskyStride + j];
      square[n * kCholeskyStride + j] = j == n ? root : v / root;
    }
    barrier();
    for (int at = thread_x(); at < n * n; at += 256) {
      const int i = at / n, j = at % n;
      if (j > i) continue;
      const int to = i * kCholeskyStride + j;
      square[to] = fma_f32(-square[n * kCholeskyStride + i], square[n * kCholeskyStride + j], square[to]);
    }
    barrier();
  }
  for (int at = thread_x(); at < p.rows * p.rows; at += 256)
    first[at / p.rows * p.size + at % p.rows] = square[at / p.rows * kCholeskyStride + at % p.rows];
  if (thread_x() == 0) min_pivots[block_x()] = min_pivot;
}

// A column left of the square D per thread: x with D^T x = what is there. Rows that a last block lacks are those
// of a unit matrix.
MIXTAPE_KERNEL(cholesky_panel, kCholeskyBlock, CholeskyGpuParams p, Global<float> factor) {
  await_earlier();
  MIXTAPE_SHARED(float, square, kCholeskyBlock* kCholeskyBlock);
  const std::int64_t parts = p.begin / kCholeskyBlock, matrix = block_x() / parts;
  const Global<float> rows = factor + (matrix * p.size + p.begin) * p.size;
  for (int i = 0; i < kCholeskyBlock; ++i) {
    const int j = thread_x();
    const bool is_inside = i < p.rows && j <= i;
    square[i * kCholeskyBlock + j] =
        is_inside ? static_cast<float>(rows[i * p.size + p.begin + j]) : (i == j ? 1.0f : 0.0f);
  }
  barrier();
  const std::int64_t col = (block_x() - matrix * parts) * kCholeskyBlock + thread_x();
  float x[kCholeskyBlock];
  MIXTAPE_UNROLL
  for (int i = 0; i < kCholeskyBlock; ++i)
    x[i] = i < p.rows ? static_cast<float>(rows[i * p.size + col]) : 0.0f;
  MIXTAPE_UNROLL
  for (int n = kCholeskyBlock - 1; n >= 0; --n) {
    x[n] = x[n] / square[n * kCholeskyBlock + n];
    MIXTAPE_UNROLL
    for (int i = 0; i < n; ++i) x[i] = fma_f32(-square[n * kCholeskyBlock + i], x[n], x[i]);
  }
  MIXTAPE_UNROLL
  for (int i = 0; i < kCholeskyBlock; ++i) {
    if (i < p.rows) rows[i * p.size + col] = x[i];
  }
}

}  // namespace mixtape
