// Words for products of a warp group, the four warps whose 128 threads follow each other, in kernels of *_cuda.cu: sm_90a.
// Products run on their own, beside what the threads do; they read tiles in shared memory that lie in panels.
//
// A panel holds 64 columns of a tile's rows, 128 bytes a row, chunks of 8 values swizzled by the row (panel_place). A
// tile begins at a multiple of 1024 bytes.
//
//   multiply_group<T, N, DenseA, DenseB>(c, a, b, keeps)
//               c[64,N] (+)= a[64,16] b[N,16]^T, both in panels from a row and column on; without `keeps` c is overwritten.
//               A dense operand lies the other way round: a[16,64], b[16,N]
//   multiply_group<T, N>(c, weights, b)
//               c[64,N] += weights[64,16] b[16,N]: weights as multiply_add's a, each warp its 16 rows
//               c: warp w of the group has rows 16 w ...; within them c[j] is multiply_add's c of columns 8 j ...
//   begin_products()
//               before the first product that uses registers that were written since
//   commit_products(), wait_products<n>(c...)
//               the products so far form a group; all but the last n groups are done, and c may be read
//   publish_copies()
//               what this thread's copies brought is seen by products after the next barrier
#pragma once

#include "mixtape/backend/gpu/tensor.h"

namespace mixtape {

constexpr int kPanel = 64;  // columns
constexpr int kGroupThreads = 128;

// The panels of a tile of `rows` rows, from an element on: a row that is a multiple of 8, a column of 16.
template <class T>
struct InPanels {
  Shared<T> tile;
  int rows, row, col;
};

// Where chunk `chunk` of 8 columns of a row lies.
template <int Rows>
MIXTAPE_DEVICE int panel_place(int row, int chunk) {
  return chunk / 8 * (Rows * kPanel) + row * kPanel + ((chunk % 8) ^ (row & 7)) * 8;
}

// As copy_rows, to a tile in panels.
template <int D, int Count, int Threads, class T>
MIXTAPE_DEVICE void copy_to_panels(const TensorRows<T>& in, Shared<T> tile) {
  static_assert(Threads / (D / 8) % 8 == 0, "the swizzle of a thread's rows is the same");
  copy_rows_to<D, kPanel, Count, Threads>(in, tile,
                                          [](int row, int chunk) { return panel_place<Count>(row, chunk); });
}

}  // namespace mixtape

#if defined(__CUDACC__)
#include "mixtape/backend/gpu/group_products_cuda.h"
#else
#include "mixtape/backend/gpu/group_products_sim.h"
#endif
