#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "mixtape/backend/cpu/gemm.h"
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/scratch.h"
#include "mixtape/ops/cholesky/cholesky_params.h"
#include "mixtape/runtime/kernel_registry.h"

namespace mixtape {
namespace {

// Columns that one thread solves for at a time: with the block's rows 16 KB.
constexpr std::int64_t kSolvedCols = 64;

// A matrix, and the rows of its factor that are being made: [begin, end).
struct Block {
  float* at(std::int64_t row, std::int64_t col) const { return matrix + row * size + col; }
  std::int64_t rows() const { return end - begin; }

  float* matrix;
  std::int64_t size, begin, end;
};

void copy_lower(const float* h, float* factor, std::int64_t size) {
  cpu::parallel_for(size, cpu::row_grain(size), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      if (h != factor) std::copy_n(h + r * size, r + 1, factor + r * size);
      std::fill_n(factor + r * size + r + 1, size - r - 1, 0.0f);
    }
  });
}

// Takes the product with the rows below off the block's rows.
void subtract_product(const Block& b) {
  const std::int64_t below = b.size - b.end, rows = b.rows();
  if (below == 0) return;
  thread_local cpu::Scratch scratch;
  float* negated = scratch.get<float>(static_cast<std::size_t>(below * rows));  // [below, rows]
  for (std::int64_t r = 0; r < below; ++r)
    std::transform(b.at(b.end + r, b.begin), b.at(b.end + r, b.end), negated + r * rows, std::negate<>());
  cpu::gemm({.trans_a = true,
             .m = rows,
             .n = b.end,
             .k = below,
             .lda = rows,
             .ldb = b.size,
             .ldc = b.size,
             .accumulate = true},
            negated, b.at(b.end, 0), b.at(b.begin, 0));
}

// As the contract says; once a pivot is bad the others don't count.
void note_pivot(float pivot, float& min_pivot) {
  if (!(min_pivot > 0.0f)) return;
  const float found = pivot + (pivot - pivot);  // NaN for an infinite one
  if (!(found >= min_pivot)) min_pivot = found;
}

// The square on the diagonal; what stood above it becomes 0.
void factor_diagonal(const Block& b, float& min_pivot) {
  for (std::int64_t n = b.end - 1; n >= b.begin; --n) {
    float* row = b.at(n, 0);
    note_pivot(row[n], min_pivot);
    row[n] = std::sqrt(row[n]);
    std::fill(row + n + 1, row + b.end, 0.0f);
    for (std::int64_t j = b.begin; j < n; ++j) row[j] /= row[n];
    for (std::int64_t i = b.begin; i < n; ++i) {
      float* above = b.at(i, 0);
      for (std::int64_t j = b.begin; j <= i; ++j) above[j] -= row[i] * row[j];
    }
  }
}

// Columns [first, last) left of the square D: x with D^T x = what is there.
void solve_columns(const Block& b, std::int64_t first, std::int64_t last) {
  for (std::int64_t n = b.end - 1; n >= b.begin; --n) {
    float* x = b.at(n, 0);
    for (std::int64_t c = first; c < last; ++c) x[c] /= *b.at(n, n);
    for (std::int64_t i = b.begin; i < n; ++i) {
      const float factor = *b.at(n, i);
      float* above = b.at(i, 0);
      for (std::int64_t c = first; c < last; ++c) above[c] -= factor * x[c];
    }
  }
}

void factor_matrix(const float* h, float* factor, std::int64_t size, float& min_pivot) {
  copy_lower(h, factor, size);
  min_pivot = std::numeric_limits<float>::infinity();
  for (std::int64_t begin = (size - 1) / kCholeskyBlock * kCholeskyBlock; begin >= 0;
       begin -= kCholeskyBlock) {
    const Block b{factor, size, begin, std::min<std::int64_t>(begin + kCholeskyBlock, size)};
    subtract_product(b);
    factor_diagonal(b, min_pivot);
    cpu::parallel_for(begin, kSolvedCols,
                      [&](std::int64_t first, std::int64_t last) { solve_columns(b, first, last); });
  }
}

void cholesky_forward(const HostCall& call) {
  const auto& p = call.params<CholeskyParams>();
  for (std::int64_t m = 0; m < p.batch; ++m) {
    const std::int64_t at = m * p.size * p.size;
    factor_matrix(call.read<float>(0) + at, call.write<float>(0) + at, p.size, call.write<float>(1)[m]);
  }
}
MIXTAPE_HOST_KERNEL("cholesky_forward_f32", cholesky_forward);

}  // namespace
}  // namespace mixtape
