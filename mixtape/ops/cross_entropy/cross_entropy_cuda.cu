// sm_90a alone.
// Loss and gradient of a row that a cluster holds: it is read once, while the next is fetched.
#include "mixtape/backend/gpu/logits_cluster.h"
#include "mixtape/ops/cross_entropy/cross_entropy_row_gpu.h"

namespace mixtape {

// Of the row that a cluster holds; `factor` makes gradients of this thread's powers.
template <class T, int Size, int Held>
MIXTAPE_DEVICE void put_gradient(const ClusterRow<T, Size, Held>& r, const CrossEntropyRow& row,
                                 Global<const T> x,
                                 const Powers<ClusterRow<T, Size, Held>::kPack, Held>& powers, float factor,
                                 Global<T> out) {
  constexpr int kPack = ClusterRow<T, Size, Held>::kPack;
  const int target = static_cast<int>(row.target) - r.first;
  const bool has_target = target >= 0 && target % r.step < kPack;
  const float x_target = has_target ? to_f32(static_cast<T>(x[r.offset() + target])) : 0.0f;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (!r.has(h)) break;
    Pack<T, kPack> d;
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i) d.v[i] = from_f32<T>(powers.of[h][i] * factor);
    store_pack(out + h * r.step, d);
  }
  if (has_target)
    out[target] = from_f32<T>(row.dloss * (softmax_at(x_target, 1.0f, row.max, row.log_sum) - 1.0f));
}

template <class T, int Size, int Held>
MIXTAPE_DEVICE void cross_entropy_cluster(const CrossEntropyParams& p, Global<const T> x,
                                          Global<const std::uint32_t> targets, Global<const float> dloss,
                                          Global<float> loss, Global<T> dx, Global<std::uint64_t> errors,
                                          Shared<T> landing, ClusterMeeting<Size, kWarps<T>, 2> meeting) {
  using Row = ClusterRow<T, Size, Held>;
  Row r(p.rows, p.cols);
  const bool is_first = r.first == 0;
  prepare_landing(r, landing, minus_infinity());
  if (r.row < r.end) fetch_row(r, x + r.offset(), landing);
  cluster_barrier();
  for (; r.row < r.end; ++r.row) {
    CrossEntropyRow row{target_of(p, targets, r.row, errors, is_first), 0.0f, 0.0f, dloss[r.row]};
    const bool has_loss = row.target >= 0;
    const float at_target =
        has_loss && is_first ? to_f32(static_cast<T>(x[r.row * p.cols + row.target])) : 0.0f;
    Run<T, Row::kPack, Held> held;
    wait_packs();
    take_row(r, landing, held);
    if (r.row + 1 < r.end) fetch_row(r, x + r.next_offset(), landing);
    Powers<Row::kPack, Held> powers;
    const LogSum mine = warp_powers(held, powers);
    const LogSum all = cluster_log_sum(mine, meeting);
    row.max = finite_max(all.max);
    row.log_sum = log_f32(all.sum);
    if (is_first) loss[r.row] = has_loss ? (all.max - at_target) + row.log_sum : 0.0f;
    if (!has_loss || row.dloss == 0.0f) {
      store_zeros(r, dx + r.offset());
    } else {
      const float factor = powers.factor * row.dloss * (rescale(mine.max, all.max) / all.sum);
      put_gradient(r, row, x, powers, factor, dx + r.offset());
    }
  }
}

// Ten packs of f32 and their powers leave registers for one block on a multiprocessor.
#define BOTH(T, SIZE, HELD, THREADS, BLOCKS)                                                                 \
  MIXTAPE_CLUSTER_KERNEL(cross_entropy_forward_backward_##T##_cluster##SIZE##_##HELD, SIZE, THREADS,         \
                         sizeof(T) == 4 && HELD == 10 ? 1 : BLOCKS, CrossEntropyParams p, Global<const T> x, \
                         Global<const std::uint32_t> targets, Global<const float> dloss, Global<float> loss, \
                         Global<T> dx, Global<std::uint64_t> errors) {                                       \
    await_earlier();                                                                                         \
    MIXTAPE_SHARED(float, parts, (ClusterMeeting<SIZE, kWarps<T>, 2>::kFloats));                             \
    MIXTAPE_SHARED(std::uint64_t, arrivals, 2);                                                              \
    MIXTAPE_SHARED_DYNAMIC(T, memory);                                                                       \
    cross_entropy_cluster<T, SIZE, HELD>(p, x, targets, dloss, loss, dx, errors, memory, {parts, arrivals}); \
  }
MIXTAPE_CLUSTER_SHAPES(BOTH)

}  // namespace mixtape
