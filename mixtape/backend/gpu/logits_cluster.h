// Rows of logits that a cluster holds.
#pragma once

#include "mixtape/backend/gpu/cluster.h"
#include "mixtape/backend/gpu/logits.h"
#include "mixtape/backend/gpu/tensor.h"

namespace mixtape {

// This thread's part of a row; -inf past the row's end.
template <class T, int Size, int Held>
MIXTAPE_DEVICE void hold_row(const ClusterRow<T, Size, Held>& r, Global<const T> x,
                             Run<T, ClusterRow<T, Size, Held>::kPack, Held>& held) {
  constexpr int kPack = ClusterRow<T, Size, Held>::kPack;
  const Global<const T> mine = x + r.offset;
  const T none = from_f32<T>(minus_infinity());
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) held.packs[h] = load_pack_or<kPack>(mine + h * r.step, r.has(h), none);
}

// Between two uses of a row: its f32 values are not kept.
template <class T, int N, int H>
MIXTAPE_DEVICE void hide(Run<T, N, H>& held) {
  MIXTAPE_UNROLL
  for (int h = 0; h < H; ++h) hide(held.packs[h]);
}

constexpr float kLog2E = 1.44269504f;

// softmax_at with the logarithm in units of ln 2: an instruction less.
MIXTAPE_DEVICE float softmax_at_log2(float x, float scale, float max, float log2_sum) {
  return exp2_fast(fma_f32(fma_f32(x, scale, -max), kLog2E, -log2_sum));
}

// The warp's largest; a NaN is passed over.
template <class T, int N, int H>
MIXTAPE_DEVICE float warp_max(const Run<T, N, H>& held) {
  Pack<T, N> max = pack_of<N>(from_f32<T>(minus_infinity()));
  MIXTAPE_UNROLL
  for (int h = 0; h < H; ++h) max = max_packs(max, held.packs[h]);
  return lane_max(max_of(max));
}

// Over the warp, the same in every lane.
template <class T, int N, int H>
MIXTAPE_DEVICE LogSum warp_log_sum(Run<T, N, H>& held) {
  const float max = warp_max(held);
  hide(held);
  LogSum s{max, 0.0f};
  MIXTAPE_UNROLL
  for (int h = 0; h < H; ++h) {
    float part = 0.0f;
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) part += exp_fast(to_f32(held.packs[h].v[i]) - finite_max(max));
    s.sum += part;
  }
  s.sum = lane_sum(s.sum);
  hide(held);
  return s;
}

// Over the cluster, the same in every thread. `parts` holds 2 * kClusterParts; cluster_arrive came before.
template <int Size>
MIXTAPE_DEVICE LogSum cluster_log_sum(const LogSum& mine, int rank, Shared<float> parts) {
  const Shared<float> maxima = parts, sums = parts + kClusterParts;
  cluster_wait();
  share_part<Size>(maxima, rank, mine.max);
  share_part<Size>(sums, rank, mine.sum);
  cluster_arrive();
  cluster_wait();
  float max = minus_infinity();
  for (int i = lane(); i < part_count<Size>(); i += kLanes) max = max_f32(max, maxima[i]);
  max = lane_max(max);
  float sum = 0.0f;
  for (int i = lane(); i < part_count<Size>(); i += kLanes) {
    const float m = maxima[i], s = sums[i];
    sum += s * rescale(m, max);
  }
  return LogSum{max, lane_sum(sum)};
}

}  // namespace mixtape

// X(type, size, held, blocks) for the shapes of ClusterShape that a cluster may have; `blocks` of 512 threads
// share a multiprocessor. The simulator's clusters have one block.
#if defined(__CUDACC__)
#define MIXTAPE_CLUSTER_SHAPES(X) \
  X(f32, 1, 8, 2)                 \
  X(f32, 2, 8, 2)                 \
  X(f32, 4, 8, 2)                 \
  X(f32, 8, 8, 2)                 \
  X(f32, 8, 10, 2)                \
  X(bf16, 1, 4, 2)                \
  X(bf16, 2, 4, 2)                \
  X(bf16, 4, 4, 2)                \
  X(bf16, 8, 4, 2)                \
  X(bf16, 8, 5, 2)                \
  X(f16, 1, 4, 2)                 \
  X(f16, 2, 4, 2)                 \
  X(f16, 4, 4, 2)                 \
  X(f16, 8, 4, 2)                 \
  X(f16, 8, 5, 2)
#else
#define MIXTAPE_CLUSTER_SHAPES(X) X(f32, 1, 8, 2) X(bf16, 1, 4, 2) X(f16, 1, 4, 2)
#endif
