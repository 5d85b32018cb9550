// Words for matrix units, in kernels of *_cuda.cu: products of 16x16 by 16x8 tiles of bf16, copies to shared
// memory that run on their own.
//
//   MIXTAPE_TENSOR_KERNEL(name, threads, blocks, ...)   as MIXTAPE_KERNEL, `blocks` of it per multiprocessor
//   load_matrices(r, row), load_matrices_transposed(r, row)   four 8x8 tiles of bf16: lane l points to row
//       l % 8 of tile l / 8; r[i] gets of tile i: lane l the elements (l / 4, 2 (l % 4)) and the next of the
//       row, or of the transposed tile
//   multiply_add(c, a, b0, b1)   c[16,8] += a[16,16] b[16,8]; with g = l / 4, q = l % 4 lane l holds
//       a: rows g, g+8, g, g+8, columns 2q, 2q+1 of the left, left, right, right half
//       b: column g, rows 2q, 2q+1 of the upper and the lower half     c: rows g, g, g+8, g+8, columns 2q,
//       2q+1
//   copy_async(to, from, is_valid)   8 values to shared memory, or 8 zeros; both pointers aligned to 16 bytes
//   commit_copies, wait_copies<n>    the copies so far form a group; all but the last n groups have arrived
//   pack_bf16(low, high), exp2_fast(x)
#pragma once

#include "mixtape/backend/gpu/kernel_language.h"

#if defined(__CUDACC__)
#include "mixtape/backend/gpu/tensor_cuda.h"
#else
#include "mixtape/backend/gpu/tensor_sim.h"
#endif

namespace mixtape {

// Where 8 values, chunk `chunk` of row `row`, lie in a tile of rows of `Width` values: neighbouring rows
// begin in different banks.
template <int Width>
MIXTAPE_DEVICE int swizzled(int row, int chunk) {
  return row * Width + (chunk ^ (row & 7)) * 8;
}

}  // namespace mixtape
