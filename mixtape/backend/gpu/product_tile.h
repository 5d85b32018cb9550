// A tile of 128 x 128 sums of products in f32 by a block of 256 threads, of any value types, without matrix units.
#pragma once

#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/backend/gpu/product_params.h"

namespace mixtape {

constexpr int kProductDepth = 16;  // terms of the sums that are in shared memory at a time
constexpr int kProductPitch = kProductTile + 4;
constexpr int kProductShared = kProductDepth * kProductPitch;  // values of each operand there
constexpr int kHeld = kProductTile * kProductDepth / 256;

// Element (row, depth) at p[row * row_step + depth * depth_step]; one of the steps is 1.
template <class T>
struct ProductOperand {
  Global<const T> p;
  std::int64_t rows, row_step, depth_step;
};

// Where thread t's element i of a [kProductTile, kProductDepth] tile lies: neighbours in memory for neighbouring threads.
MIXTAPE_DEVICE int tile_row(int i, bool is_depth_dense) {
  const int flat = i * 256 + flat_thread();
  return is_depth_dense ? flat / kProductDepth : flat % kProductTile;
}
MIXTAPE_DEVICE int tile_depth(int i, bool is_depth_dense) {
  const int flat = i * 256 + flat_thread();
  return is_depth_dense ? flat % kProductDepth : flat / kProductTile;
}

template <class T>
MIXTAPE_DEVICE void load_tile(const ProductOperand<T>& in, std::int64_t depth, std::int64_t at,
                              float (&held)[kHeld]) {
  MIXTAPE_UNROLL
  for (int i = 0; i < kHeld; ++i) {
    const int row = tile_row(i, in.depth_step == 1);
    const std::int64_t d = at + tile_depth(i, in.depth_step == 1);
    held[i] = row < in.rows && d < depth ? to_f32(in.p[row * in.row_step + d * in.depth_step]) : 0.0f;
  }
}

MIXTAPE_DEVICE void keep_tile(bool is_depth_dense, const float (&held)[kHeld], Shared<float> tile) {
  MIXTAPE_UNROLL
  for (int i = 0; i < kHeld; ++i)
    tile[tile_depth(i, is_depth_dense) * kProductPitch + tile_row(i, is_depth_dense)] = held[i];
}

// Rows and columns of the result that a thread holds: 4 and, 64 further, 4.
MIXTAPE_DEVICE int held_index(int thread, int i) { return i / 4 * (kProductTile / 2) + thread * 4 + i % 4; }

// sums[i][j] += sum over depth of a(row i, d) b(row j, d). The next tiles are on their way during a sum.
template <class A, class B>
MIXTAPE_DEVICE void add_tile_products(const ProductOperand<A>& a, const ProductOperand<B>& b,
                                      std::int64_t depth, Shared<float> tile_a, Shared<float> tile_b,
                                      float (&sums)[8][8]) {
  const int x = flat_thread() % 16, y = flat_thread() / 16;
  float held_a[kHeld], held_b[kHeld];
  load_tile(a, depth, 0, held_a);
  load_tile(b, depth, 0, held_b);
  for (std::int64_t at = 0; at < depth; at += kProductDepth) {
    barrier();
    keep_tile(a.depth_step == 1, held_a, tile_a);
    keep_tile(b.depth_step == 1, held_b, tile_b);
    barrier();
    load_tile(a, depth, at + kProductDepth, held_a);
    load_tile(b, depth, at + kProductDepth, held_b);
    for (int d = 0; d < kProductDepth; ++d) {
      float va[8], vb[8];
      MIXTAPE_UNROLL
      for (int quad = 0; quad < 2; ++quad) {
        const auto pack_a = load_pack<4>(tile_a + (d * kProductPitch + held_index(y, quad * 4)));
        const auto pack_b = load_pack<4>(tile_b + (d * kProductPitch + held_index(x, quad * 4)));
        MIXTAPE_UNROLL
        for (int i = 0; i < 4; ++i) {
          va[quad * 4 + i] = pack_a.v[i];
          vb[quad * 4 + i] = pack_b.v[i];
        }
      }
      MIXTAPE_UNROLL
      for (int i = 0; i < 8; ++i) {
        MIXTAPE_UNROLL
        for (int j = 0; j < 8; ++j) sums[i][j] = fma_f32(va[i], vb[j], sums[i][j]);
      }
    }
  }
}

template <class T>
MIXTAPE_DEVICE void store_tile_sums(const float (&sums)[8][8], Global<T> c, Global<const T> before,
                                    std::int64_t rows, std::int64_t cols, std::int64_t row_step,
                                    bool accumulate) {
  const int x = flat_thread() % 16, y = flat_thread() / 16;
  MIXTAPE_UNROLL
  for (int i = 0; i < 8; ++i) {
    MIXTAPE_UNROLL
    for (int j = 0; j < 8; ++j) {
      const int row = held_index(y, i), col = held_index(x, j);
      if (row >= rows || col >= cols) continue;
      const std::int64_t at = row * row_step + col;
      c[at] = from_f32<T>(accumulate ? to_f32(before[at]) + sums[i][j] : sums[i][j]);
    }
  }
}

}  // namespace mixtape
