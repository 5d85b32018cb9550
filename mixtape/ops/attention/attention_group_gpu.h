// What the attention kernels of warp groups share. A block of two groups has 128 rows of queries or keys, 64 each, and meets
// tiles of the others.
#pragma once

#include "mixtape/backend/gpu/group_products.h"
#include "mixtape/ops/attention/attention_tensor_gpu.h"

namespace mixtape {

constexpr int kGroupsThreads = 2 * kGroupThreads;
constexpr float kMinusInfinity = -__builtin_huge_valf();

// The first of the 64 rows of this thread's group; from lane 0, so that the compiler knows that no warp parts by it.
MIXTAPE_DEVICE int group_row() { return lane_shuffle(warp(), 0) / 4 * 64; }

// sums = a b^T over all dimensions: the group's rows of a, which has Rows, and Cols rows of b.
template <int D, int Cols, int Rows = kQueries, class T>
MIXTAPE_DEVICE void begin_rows(Shared<T> a, Shared<T> b, float (&sums)[Cols / 8][4]) {
  MIXTAPE_UNROLL
  for (int d = 0; d < D; d += 16)
    multiply_group<T, Cols>(sums, InPanels<T>{a, Rows, group_row(), d}, InPanels<T>{b, Cols, 0, d}, d > 0);
  commit_products();
}

// out += weights b, Rows rows of b.
template <int D, int Rows, class T>
MIXTAPE_DEVICE void begin_weights(const std::uint32_t (&weights)[Rows / 8][2], Shared<T> b,
                                  float (&out)[D / 8][4]) {
  MIXTAPE_UNROLL
  for (int k = 0; k < Rows / 16; ++k) {
    const std::uint32_t left[4] = {weights[k * 2][0], weights[k * 2][1], weights[k * 2 + 1][0],
                                   weights[k * 2 + 1][1]};
    multiply_group<T, D>(out, left, InPanels<T>{b, Rows, k * 16, 0});
  }
  commit_products();
}

MIXTAPE_DEVICE int tiles_of(const AttentionRange& range, int width) {
  return range.begin < range.end ? (range.end - range.begin + width - 1) / width : 0;
}

template <class T, int Cols>
MIXTAPE_DEVICE void pack_weights(const float (&values)[Cols / 8][4], std::uint32_t (&weights)[Cols / 8][2]) {
  MIXTAPE_UNROLL
  for (int j = 0; j < Cols / 8; ++j) {
    weights[j][0] = pack_pair<T>(values[j][0], values[j][1]);
    weights[j][1] = pack_pair<T>(values[j][2], values[j][3]);
  }
}

}  // namespace mixtape
