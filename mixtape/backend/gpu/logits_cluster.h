// Rows of logits that a cluster holds.
#pragma once

#include "mixtape/backend/gpu/cluster.h"
#include "mixtape/backend/gpu/logits.h"
#include "mixtape/backend/gpu/tensor.h"

namespace mixtape {

// Of a block, at most: MIXTAPE_CLUSTER_SHAPES.
template <class T>
constexpr int kWarps = sizeof(T) == 4 ? 16 : 8;

// A row's packs land in shared memory while the row before is worked on; each thread takes what it fetched itself, so
// that no barrier stands between. Packs that no row has are `none` from the start.
template <class T, int Size, int Held>
MIXTAPE_DEVICE void prepare_landing(const ClusterRow<T, Size, Held>& r, Shared<T> landing, float none) {
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (!r.has(h))
      store_pack(landing + r.place(h), pack_of<ClusterRow<T, Size, Held>::kPack>(from_f32<T>(none)));
  }
}
// `mine` is this thread's first element of the row.
template <class T, int Size, int Held>
MIXTAPE_DEVICE void fetch_row(const ClusterRow<T, Size, Held>& r, Global<const T> mine, Shared<T> landing) {
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (r.has(h)) copy_pack_async(landing + r.place(h), mine + h * r.step);
  }
}
template <class T, int Size, int Held>
MIXTAPE_DEVICE void take_row(const ClusterRow<T, Size, Held>& r, Shared<T> landing,
                             Run<T, ClusterRow<T, Size, Held>::kPack, Held>& held) {
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    held.packs[h] = load_pack<ClusterRow<T, Size, Held>::kPack>(landing + r.place(h));
    hide(held.packs[h]);
  }
}

template <class T, int Size, int Held>
MIXTAPE_DEVICE void store_zeros(const ClusterRow<T, Size, Held>& r, Global<T> out) {
  constexpr int kPack = ClusterRow<T, Size, Held>::kPack;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (r.has(h)) store_pack(out + h * r.step, pack_of<kPack>(from_f32<T>(0.0f)));
  }
}

// The warp's largest; a NaN is passed over.
template <class T, int N, int H>
MIXTAPE_DEVICE float warp_max(const Run<T, N, H>& held) {
  return lane_max(run_max(held));
}

// Over the warp, the same in every lane. The thread's powers are below the warp's max.
template <class T, int N, int H>
MIXTAPE_DEVICE LogSum warp_powers(const Run<T, N, H>& held, Powers<N, H>& powers) {
  const float max = warp_max(held);
  return LogSum{max, lane_sum(powers_of(held, max, powers))};
}

// Over the cluster, the same in every thread.
template <int Size, int Warps>
MIXTAPE_DEVICE LogSum cluster_log_sum(const LogSum& mine, ClusterMeeting<Size, Warps, 2>& meeting) {
  meeting.give(0, mine.max);
  meeting.give(1, mine.sum);
  meeting.await();
  const Shared<float> maxima = meeting.of(0), sums = meeting.of(1);
  float max = minus_infinity(), sum = 0.0f;
  meeting.for_parts([&](int i) { max = max_f32(max, maxima[i]); });
  max = lane_max(max);
  meeting.for_parts([&](int i) {
    const float m = maxima[i], s = sums[i];
    sum += s * rescale(m, max);
  });
  ++meeting.turn;
  return LogSum{max, lane_sum(sum)};
}

}  // namespace mixtape

// X(type, size, held, threads, blocks) for the shapes of ClusterShape that a cluster may have: `blocks` of up to `threads`
// threads share a multiprocessor. Of 16-bit values few threads hold many: what they tell each other about a row takes as
// many instructions as 20 elements. The simulator's clusters have one block.
#if defined(__CUDACC__)
#define MIXTAPE_CLUSTER_SHAPES(X) \
  X(f32, 1, 8, 512, 2)            \
  X(f32, 2, 8, 512, 2)            \
  X(f32, 4, 8, 512, 2)            \
  X(f32, 8, 8, 512, 2)            \
  X(f32, 8, 10, 512, 2)           \
  X(bf16, 1, 10, 256, 2)          \
  X(bf16, 2, 10, 256, 2)          \
  X(bf16, 4, 10, 256, 2)          \
  X(bf16, 8, 10, 256, 2)          \
  X(f16, 1, 10, 256, 2)           \
  X(f16, 2, 10, 256, 2)           \
  X(f16, 4, 10, 256, 2)           \
  X(f16, 8, 10, 256, 2)
#else
#define MIXTAPE_CLUSTER_SHAPES(X) X(f32, 1, 8, 512, 2) X(bf16, 1, 10, 256, 2) X(f16, 1, 10, 256, 2)
#endif
