// Words for matrix units, in kernels of *_cuda.cu, from Ampere (sm_80) on: products of 16x16 by 16x8 tiles of bf16 or f16, T below,
// copies to shared memory that run on their own.
//
//   load_matrices(r, tile, at), load_matrices_transposed(r, tile, at)
//               four 8x8 tiles of T: lane l gives row l % 8 of tile l / 8; r[i] gets of tile i: lane l the
//               elements (l / 4, 2 (l % 4)) and the next of the row, or of the transposed tile
//   multiply_add<T>(c, a, b0, b1)
//               c[16,8] += a[16,16] b[16,8]; with g = l / 4, q = l % 4 lane l holds
//                 a: rows g, g+8, g, g+8, columns 2q, 2q+1 of the left, left, right, right half
//                 b: column g, rows 2q, 2q+1 of the upper and the lower half
//                 c: rows g, g, g+8, g+8, columns 2q, 2q+1
//   copy_async(tile, at, from, is_valid)
//               8 values to tile[at ...], or 8 zeros; both aligned to 16 bytes
//   commit_copies, wait_copies<n>
//               the copies so far form a group; all but the last n groups have arrived
//   pack_pair<T>(low, high)
//   fma_pairs<T>(a, b, c)   a * b + c of both values of a word, rounded once
//   and_or(v, mask, bits)   (v & mask) | bits in one instruction, both constants
//   hidden(i)   i, which the compiler knows nothing about: what follows from it is not kept over a loop
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

// Rows in memory: element (row, d) at p[row * step + d].
template <class T>
struct TensorRows {
  Global<const T> p;
  int step, count, dim;
};

// Starts the copy of Count rows to a tile; 0 past the last row and the last dimension. place(row, chunk) is where a
// thread's first chunk goes, its next ones lie Width values a row further.
template <int D, int Width, int Count, int Threads, class T, class Place>
MIXTAPE_DEVICE void copy_rows_to(const TensorRows<T>& in, Shared<T> tile, const Place& place) {
  constexpr int kChunks = D / 8;
  constexpr int kStep = Threads / kChunks;
  const int thread = hidden(flat_thread()), chunk = thread % kChunks, first = thread / kChunks;
  int to = place(first, chunk);
  int at = first * in.step + chunk * 8;
  const int end = chunk * 8 < in.dim ? in.count : 0;
  MIXTAPE_ROLLED
  for (int line = first; line < Count; line += kStep) {
    copy_async(tile, to, in.p + (line < end ? at : 0), line < end);
    to += kStep * Width;
    at += kStep * in.step;
  }
}
// To tile[row][d].
template <int D, int Count, int Threads, class T>
MIXTAPE_DEVICE void copy_rows(const TensorRows<T>& in, Shared<T> tile) {
  copy_rows_to<D, D, Count, Threads>(in, tile, [](int row, int chunk) { return swizzled<D>(row, chunk); });
}

// Fragments of a tile in shared memory: tile[row][depth] with Width values a row or, where rows are dense,
// tile[depth][row]; swizzled. A lane's place in them depends on row and depth, multiples of 16, in a simple
// way.
template <int Width, bool DenseRows>
MIXTAPE_DEVICE int fragment_at(int place, int row, int depth) {
  return DenseRows ? (place ^ row) + depth * Width : (place ^ depth) + row * Width;
}
// For the left operand of a product: 16 rows, 16 of the depth.
template <int Width, bool DenseRows>
MIXTAPE_DEVICE int left_place() {
  const int l = lane();
  return hidden(DenseRows ? swizzled<Width>(l % 8 + l / 16 * 8, l / 8 % 2) : swizzled<Width>(l % 16, l / 16));
}
// For the right operand: r[0], r[1] of 8 rows, r[2], r[3] of the next 8.
template <int Width, bool DenseRows>
MIXTAPE_DEVICE int right_place() {
  const int l = lane();
  return hidden(DenseRows ? swizzled<Width>(l % 16, l / 16) : swizzled<Width>(l % 8 + l / 16 * 8, l / 8 % 2));
}
template <int Width, bool DenseRows, class T>
MIXTAPE_DEVICE void load_fragment(Shared<T> tile, int place, int row, int depth, std::uint32_t (&r)[4]) {
  const int at = fragment_at<Width, DenseRows>(place, row, depth);
  if constexpr (DenseRows) {
    load_matrices_transposed(r, tile, at);
  } else {
    load_matrices(r, tile, at);
  }
}

// The first of the four columns, of 16, that gather_four gives a lane.
MIXTAPE_DEVICE int gathered_column() { return (lane() % 2 == 1 ? 8 : 0) + lane() % 4 / 2 * 4; }

// Of two neighbouring 16 x 8 results each lane holds a pair of a row; lanes exchange pairs so that each has
// four in a row. Returns the column of the first among the 16.
MIXTAPE_DEVICE int gather_four(float left0, float left1, float right0, float right1, float (&v)[4]) {
  const bool is_odd = lane() % 2 == 1;
  const float other0 = lane_xor(is_odd ? left0 : right0, 1), other1 = lane_xor(is_odd ? left1 : right1, 1);
  v[0] = is_odd ? other0 : left0, v[1] = is_odd ? other1 : left1;
  v[2] = is_odd ? right0 : other0, v[3] = is_odd ? right1 : other1;
  return gathered_column();
}

// c = v or, accumulating, c + v; N values.
template <class C, int N>
MIXTAPE_DEVICE void store_values(const float (&v)[N], Global<C> c, bool accumulate) {
  Pack<C, N> out;
  if (accumulate) out = load_pack<N>(c);
  MIXTAPE_UNROLL
  for (int i = 0; i < N; ++i) out.v[i] = from_f32<C>(accumulate ? to_f32(out.v[i]) + v[i] : v[i]);
  store_pack(c, out);
}

}  // namespace mixtape
