// sm_90a alone.
// Rows too long for the registers of a block: a cluster holds one, so that it is read once.
#include "mixtape/backend/gpu/logits_cluster.h"
#include "mixtape/ops/softmax/softmax_params.h"

namespace mixtape {

template <class T, int Size, int Held>
MIXTAPE_DEVICE void softmax_forward_cluster(const SoftmaxParams& p, Global<const T> x, Global<T> y,
                                            Shared<float> parts) {
  using Row = ClusterRow<T, Size, Held>;
  cluster_arrive();
  const Row r(p.cols);
  Run<T, Row::kPack, Held> held;
  hold_row(r, x, held);
  const LogSum all = cluster_log_sum<Size>(warp_log_sum(held), r.rank, parts);
  const float shift = finite_max(all.max), factor = 1.0f / all.sum;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (!r.has(h)) break;
    Pack<T, Row::kPack> out;
    MIXTAPE_UNROLL
    for (int i = 0; i < Row::kPack; ++i)
      out.v[i] = from_f32<T>(exp_fast(to_f32(held.packs[h].v[i]) - shift) * factor);
    store_pack(y + (r.offset + h * r.step), out);
  }
}

#define FORWARD(T, SIZE, HELD, BLOCKS)                                                                     \
  MIXTAPE_CLUSTER_KERNEL(softmax_forward_##T##_cluster##SIZE##_##HELD, SIZE, 512, BLOCKS, SoftmaxParams p, \
                         Global<const T> x, Global<T> y) {                                                 \
    MIXTAPE_SHARED(float, parts, 2 * kClusterParts);                                                       \
    softmax_forward_cluster<T, SIZE, HELD>(p, x, y, parts);                                                \
  }
MIXTAPE_CLUSTER_SHAPES(FORWARD)

// y stays in registers, dy in shared memory.
template <class T, int Size, int Held>
MIXTAPE_DEVICE void softmax_backward_cluster(const SoftmaxParams& p, Global<const T> y, Global<const T> dy,
                                             Global<T> dx, Shared<T> held_dy, Shared<float> parts) {
  using Row = ClusterRow<T, Size, Held>;
  cluster_arrive();
  const Row r(p.cols);
  Pack<T, Row::kPack> held_y[Held];
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (r.has(h))
      copy_pack_async(held_dy + (h * threads_x() + thread_x()) * Row::kPack, dy + (r.offset + h * r.step));
  }
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (r.has(h)) held_y[h] = load_pack<Row::kPack>(y + (r.offset + h * r.step));
  }
  wait_packs();
  float dot = 0.0f;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (!r.has(h)) break;
    const Pack<T, Row::kPack> d =
        load_pack<Row::kPack>(held_dy + (h * threads_x() + thread_x()) * Row::kPack);
    float part = 0.0f;
    MIXTAPE_UNROLL
    for (int i = 0; i < Row::kPack; ++i) part = fma_f32(to_f32(held_y[h].v[i]), to_f32(d.v[i]), part);
    dot += part;
  }
  dot = lane_sum(dot);
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) hide(held_y[h]);
  cluster_wait();
  share_part<Size>(parts, r.rank, dot);
  cluster_arrive();
  cluster_wait();
  dot = 0.0f;
  for (int i = lane(); i < part_count<Size>(); i += kLanes) dot += parts[i];
  dot = lane_sum(dot);
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (!r.has(h)) break;
    const Pack<T, Row::kPack> d =
        load_pack<Row::kPack>(held_dy + (h * threads_x() + thread_x()) * Row::kPack);
    Pack<T, Row::kPack> out;
    if (p.accumulate != 0) out = load_pack<Row::kPack>(dx + (r.offset + h * r.step));
    MIXTAPE_UNROLL
    for (int i = 0; i < Row::kPack; ++i) {
      const float v = to_f32(held_y[h].v[i]) * (to_f32(d.v[i]) - dot);
      out.v[i] = from_f32<T>(p.accumulate != 0 ? to_f32(out.v[i]) + v : v);
    }
    store_pack(dx + (r.offset + h * r.step), out);
  }
}

#define BACKWARD(T, SIZE, HELD, BLOCKS)                                                                     \
  MIXTAPE_CLUSTER_KERNEL(softmax_backward_##T##_cluster##SIZE##_##HELD, SIZE, 512, BLOCKS, SoftmaxParams p, \
                         Global<const T> y, Global<const T> dy, Global<T> dx) {                             \
    MIXTAPE_SHARED(float, parts, kClusterParts);                                                            \
    MIXTAPE_SHARED_DYNAMIC(T, held_dy);                                                                     \
    softmax_backward_cluster<T, SIZE, HELD>(p, y, dy, dx, held_dy, parts);                                  \
  }
MIXTAPE_CLUSTER_SHAPES(BACKWARD)

}  // namespace mixtape
