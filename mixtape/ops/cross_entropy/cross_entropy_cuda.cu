// sm_90a alone.
// Loss and gradient of a row that a cluster holds: it is read once.
#include "mixtape/ops/cross_entropy/cross_entropy_row_gpu.h"
#include "mixtape/backend/gpu/logits_cluster.h"

namespace mixtape {

template <class T, int Size, int Held>
MIXTAPE_DEVICE void store_zeros(const ClusterRow<T, Size, Held>& r, Global<T> out) {
  constexpr int kPack = ClusterRow<T, Size, Held>::kPack;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (r.has(h)) store_pack(out + h * r.step, pack_of<kPack>(from_f32<T>(0.0f)));
  }
}

template <class T, int Size, int Held>
MIXTAPE_DEVICE void cross_entropy_cluster(const CrossEntropyParams& p, Global<const T> x,
                                          Global<const std::uint32_t> targets, Global<const float> dloss,
                                          Global<float> loss, Global<T> dx, Global<std::uint64_t> errors,
                                          Shared<float> parts) {
  using Row = ClusterRow<T, Size, Held>;
  cluster_arrive();
  const Row r(p.cols);
  const bool is_first = r.first == 0;
  CrossEntropyRow row{target_of(p, targets, r.row, errors, is_first), 0.0f, 0.0f, dloss[r.row]};
  const bool has_loss = row.target >= 0;
  const float at_target =
      has_loss && is_first ? to_f32(static_cast<T>(x[r.row * p.cols + row.target])) : 0.0f;
  Run<T, Row::kPack, Held> held;
  LogSum mine{minus_infinity(), 0.0f};
  if (has_loss) {
    hold_row(r, x, held);
    mine = warp_log_sum(held);
  }
  const LogSum all = cluster_log_sum<Size>(mine, r.rank, parts);
  row.max = finite_max(all.max);
  row.log_sum = log_f32(all.sum);
  if (is_first) loss[r.row] = has_loss ? (all.max - at_target) + row.log_sum : 0.0f;
  const int target = static_cast<int>(row.target) - r.first;
  const float log2_sum = row.log_sum * kLog2E;
  const Global<T> out = dx + r.offset;
  if (!has_loss || row.dloss == 0.0f) return store_zeros<T, Size, Held>(r, out);
  const bool has_target = target >= 0 && target % r.step < Row::kPack;
  const float x_target = has_target ? to_f32(static_cast<T>(x[r.offset + target])) : 0.0f;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (!r.has(h)) break;
    hide(held.packs[h]);
    Pack<T, Row::kPack> d;
    MIXTAPE_UNROLL
    for (int i = 0; i < Row::kPack; ++i)
      d.v[i] = from_f32<T>(row.dloss * softmax_at_log2(to_f32(held.packs[h].v[i]), 1.0f, row.max, log2_sum));
    store_pack(out + h * r.step, d);
  }
  if (has_target)
    out[target] = from_f32<T>(row.dloss * (softmax_at_log2(x_target, 1.0f, row.max, log2_sum) - 1.0f));
}

#define BOTH(T, SIZE, HELD, BLOCKS)                                                                      \
  MIXTAPE_CLUSTER_KERNEL(cross_entropy_forward_backward_##T##_cluster##SIZE##_##HELD, SIZE, 512, BLOCKS, \
                         CrossEntropyParams p, Global<const T> x, Global<const std::uint32_t> targets,   \
                         Global<const float> dloss, Global<float> loss, Global<T> dx,                    \
                         Global<std::uint64_t> errors) {                                                 \
    MIXTAPE_SHARED(float, parts, 2 * kClusterParts);                                                     \
    cross_entropy_cluster<T, SIZE, HELD>(p, x, targets, dloss, loss, dx, errors, parts);                 \
  }
MIXTAPE_CLUSTER_SHAPES(BOTH)

}  // namespace mixtape
