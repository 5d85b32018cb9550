// sm_90a alone.
// Rows too long for the registers of a block: a cluster holds one, so that it is read once, while it fetches the next.
#include "mixtape/backend/gpu/logits_cluster.h"
#include "mixtape/ops/softmax/softmax_params.h"

namespace mixtape {

template <class T, int Size, int Held>
MIXTAPE_DEVICE void softmax_forward_cluster(const SoftmaxParams& p, Global<const T> x, Global<T> y,
                                            Shared<T> landing, ClusterMeeting<Size, kWarps<T>, 2> meeting) {
  using Row = ClusterRow<T, Size, Held>;
  Row r(p.rows, p.cols);
  prepare_landing(r, landing, minus_infinity());
  if (r.row < r.end) fetch_row(r, x + r.offset(), landing);
  cluster_barrier();
  for (; r.row < r.end; ++r.row) {
    Run<T, Row::kPack, Held> held;
    wait_packs();
    take_row(r, landing, held);
    if (r.row + 1 < r.end) fetch_row(r, x + r.next_offset(), landing);
    Powers<Row::kPack, Held> powers;
    const LogSum mine = warp_powers(held, powers);
    const LogSum all = cluster_log_sum(mine, meeting);
    const float factor = powers.factor * (rescale(mine.max, all.max) / all.sum);
    MIXTAPE_UNROLL
    for (int h = 0; h < Held; ++h) {
      if (!r.has(h)) break;
      Pack<T, Row::kPack> out;
      MIXTAPE_UNROLL
      for (int i = 0; i < Row::kPack; ++i) out.v[i] = from_f32<T>(powers.of[h][i] * factor);
      store_pack(y + (r.offset() + h * r.step), out);
    }
  }
}

#define FORWARD(T, SIZE, HELD, THREADS, BLOCKS)                                               \
  MIXTAPE_CLUSTER_KERNEL(softmax_forward_##T##_cluster##SIZE##_##HELD, SIZE, THREADS, BLOCKS, \
                         SoftmaxParams p, Global<const T> x, Global<T> y) {                   \
    await_earlier();                                                                          \
    MIXTAPE_SHARED(float, parts, (ClusterMeeting<SIZE, kWarps<T>, 2>::kFloats));              \
    MIXTAPE_SHARED(std::uint64_t, arrivals, 2);                                               \
    MIXTAPE_SHARED_DYNAMIC(T, memory);                                                        \
    softmax_forward_cluster<T, SIZE, HELD>(p, x, y, memory, {parts, arrivals});               \
  }
MIXTAPE_CLUSTER_SHAPES(FORWARD)

// y stays in registers, dy in shared memory. One row: to fetch the next one meanwhile would take the registers that keep
// two blocks on a multiprocessor.
template <class T, int Size, int Held>
MIXTAPE_DEVICE void softmax_backward_cluster(const SoftmaxParams& p, Global<const T> y, Global<const T> dy,
                                             Global<T> dx, Shared<T> held_dy,
                                             ClusterMeeting<Size, kWarps<T>, 1> meeting) {
  using Row = ClusterRow<T, Size, Held>;
  constexpr int kPack = Row::kPack;
  const Row r(p.rows, p.cols);
  prepare_landing(r, held_dy, 0.0f);
  fetch_row(r, dy + r.offset(), held_dy);
  Pack<T, kPack> held_y[Held];
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h)
    held_y[h] = load_pack_or<kPack>(y + (r.offset() + h * r.step), r.has(h), from_f32<T>(0.0f));
  cluster_barrier();
  wait_packs();
  float dot = 0.0f;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    const Pack<T, kPack> d = load_pack<kPack>(held_dy + r.place(h));
    float part = 0.0f;
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i) part = fma_f32(to_f32(held_y[h].v[i]), to_f32(d.v[i]), part);
    dot += part;
  }
  meeting.give(0, lane_sum(dot));
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) hide(held_y[h]);
  meeting.await();
  dot = 0.0f;
  meeting.for_parts([&](int i) { dot += meeting.of(0)[i]; });
  dot = lane_sum(dot);
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (!r.has(h)) break;
    const Pack<T, kPack> d = load_pack<kPack>(held_dy + r.place(h));
    Pack<T, kPack> out;
    if (p.accumulate != 0) out = load_pack<kPack>(dx + (r.offset() + h * r.step));
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i) {
      const float v = to_f32(held_y[h].v[i]) * (to_f32(d.v[i]) - dot);
      out.v[i] = from_f32<T>(p.accumulate != 0 ? to_f32(out.v[i]) + v : v);
    }
    store_pack(dx + (r.offset() + h * r.step), out);
  }
}

#define BACKWARD(T, SIZE, HELD, THREADS, BLOCKS)                                                           \
  MIXTAPE_CLUSTER_KERNEL(softmax_backward_##T##_cluster##SIZE##_##HELD, SIZE, THREADS, 2, SoftmaxParams p, \
                         Global<const T> y, Global<const T> dy, Global<T> dx) {                            \
    await_earlier();                                                                                       \
    MIXTAPE_SHARED(float, parts, (ClusterMeeting<SIZE, kWarps<T>, 1>::kFloats));                           \
    MIXTAPE_SHARED(std::uint64_t, arrivals, 2);                                                            \
    MIXTAPE_SHARED_DYNAMIC(T, held_dy);                                                                    \
    softmax_backward_cluster<T, SIZE, HELD>(p, y, dy, dx, held_dy, {parts, arrivals});                     \
  }
MIXTAPE_CLUSTER_SHAPES(BACKWARD)

}  // namespace mixtape
