// sm_90a alone.
// Loss and gradient of a pair of rows that a cluster holds: the teacher's in registers, the student's in
// shared memory. Each is read once.
#include "mixtape/backend/gpu/logits_cluster.h"
#include "mixtape/ops/kl_div/kl_sums_gpu.h"

namespace mixtape {

// Where this thread's pack h is kept.
template <int N>
MIXTAPE_DEVICE int place(int h) {
  return (h * threads_x() + thread_x()) * N;
}

// The student's packs; -inf past the row's end.
template <class T, int Size, int Held>
MIXTAPE_DEVICE void hold_student(const ClusterRow<T, Size, Held>& r, Global<const T> student,
                                 Shared<T> held) {
  constexpr int kPack = ClusterRow<T, Size, Held>::kPack;
  const Global<const T> mine = student + r.offset;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (r.has(h)) {
      copy_pack_async(held + place<kPack>(h), mine + h * r.step);
    } else {
      store_pack(held + place<kPack>(h), pack_of<kPack>(from_f32<T>(minus_infinity())));
    }
  }
}

// Over the warp, the same in every lane.
template <class T, int N, int Held>
MIXTAPE_DEVICE KlSums warp_sums(Run<T, N, Held>& teacher, Shared<T> student, float scale) {
  Pack<T, N> s_max = pack_of<N>(from_f32<T>(minus_infinity()));
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) s_max = max_packs(s_max, load_pack<N>(student + place<N>(h)));
  KlSums sums{scale * warp_max(teacher), scale * lane_max(max_of(s_max)), 0.0f, 0.0f, 0.0f};
  hide(teacher);
  lane_barrier();  // what was read before is read again, not kept
  const float t_shift = finite_max(sums.t_max), s_shift = finite_max(sums.s_max);
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    hide(teacher.packs[h]);
    const Pack<T, N> s = load_pack<N>(student + place<N>(h));
    KlSums part{sums.t_max, sums.s_max, 0.0f, 0.0f, 0.0f};
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i)
      add_entry(part, fma_f32(to_f32(teacher.packs[h].v[i]), scale, -t_shift),
                fma_f32(to_f32(s.v[i]), scale, -s_shift));
    sums.t_sum += part.t_sum;
    sums.s_sum += part.s_sum;
    sums.gap += part.gap;
  }
  sums.t_sum = lane_sum(sums.t_sum);
  sums.s_sum = lane_sum(sums.s_sum);
  sums.gap = lane_sum(sums.gap);
  hide(teacher);
  return sums;
}

// Over the cluster, the same in every thread. `parts` holds 5 * kClusterParts; cluster_arrive came before.
template <int Size>
MIXTAPE_DEVICE KlSums cluster_sums(const KlSums& mine, int rank, Shared<float> parts) {
  cluster_wait();
  share_part<Size>(parts, rank, mine.t_max);
  share_part<Size>(parts + kClusterParts, rank, mine.s_max);
  share_part<Size>(parts + 2 * kClusterParts, rank, mine.t_sum);
  share_part<Size>(parts + 3 * kClusterParts, rank, mine.s_sum);
  share_part<Size>(parts + 4 * kClusterParts, rank, mine.gap);
  cluster_arrive();
  cluster_wait();
  KlSums all = no_sums();
  for (int i = lane(); i < part_count<Size>(); i += kLanes) {
    all.t_max = max_f32(all.t_max, parts[i]);
    all.s_max = max_f32(all.s_max, parts[kClusterParts + i]);
  }
  all.t_max = lane_max(all.t_max);
  all.s_max = lane_max(all.s_max);
  for (int i = lane(); i < part_count<Size>(); i += kLanes) {
    KlSums part{parts[i], parts[kClusterParts + i], parts[2 * kClusterParts + i],
                parts[3 * kClusterParts + i], parts[4 * kClusterParts + i]};
    move_maxima(part, all.t_max, all.s_max);
    all.t_sum += part.t_sum;
    all.s_sum += part.s_sum;
    all.gap += part.gap;
  }
  all.t_sum = lane_sum(all.t_sum);
  all.s_sum = lane_sum(all.s_sum);
  all.gap = lane_sum(all.gap);
  return all;
}

// Over the cluster, as cluster_sums.
template <class T, int Size, int Held, int N>
MIXTAPE_DEVICE NearSums cluster_near_sums(Run<T, N, Held>& teacher, Shared<T> student, float scale,
                                          const KlSums& all, int rank, Shared<float> parts) {
  NearSums mine{0.0f, 0.0f};
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    hide(teacher.packs[h]);
    const Run<T, N, 1> t{{teacher.packs[h]}}, s{{load_pack<N>(student + place<N>(h))}};
    add_near_runs(mine, all, t, s, scale);
  }
  const float gap = lane_sum(mine.gap), excess = lane_sum(mine.excess);
  cluster_arrive();
  cluster_wait();
  share_part<Size>(parts, rank, gap);
  share_part<Size>(parts + kClusterParts, rank, excess);
  cluster_arrive();
  cluster_wait();
  NearSums sum{0.0f, 0.0f};
  for (int i = lane(); i < part_count<Size>(); i += kLanes) {
    sum.gap += parts[i];
    sum.excess += parts[kClusterParts + i];
  }
  return NearSums{lane_sum(sum.gap), lane_sum(sum.excess)};
}

template <class T, int Size, int Held>
MIXTAPE_DEVICE void kl_div_cluster(const KlDivParams& p, Global<const T> teacher, Global<const T> student,
                                   Global<const float> dloss, Global<float> loss, Global<T> dstudent,
                                   Shared<T> s, Shared<float> parts) {
  using Row = ClusterRow<T, Size, Held>;
  cluster_arrive();
  const Row r(p.cols);
  Run<T, Row::kPack, Held> t;
  hold_student(r, student, s);
  hold_row(r, teacher, t);
  const float weight = dloss[r.row] * p.inv_t;
  wait_packs();
  const KlSums all = cluster_sums<Size>(warp_sums(t, s, p.inv_t), r.rank, parts);
  KlRow row;
  float value = kl_loss(all, row);
  if (value < kNearLoss)
    value = near_loss(all, cluster_near_sums<T, Size>(t, s, p.inv_t, all, r.rank, parts));
  if (r.first == 0) loss[r.row] = value;
  const float t_max = finite_max(row.t_max), s_max = finite_max(row.s_max);
  const float t_log = row.t_log * kLog2E, s_log = row.s_log * kLog2E;
  const Global<T> out = dstudent + r.offset;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (!r.has(h)) break;
    hide(t.packs[h]);
    const Pack<T, Row::kPack> in = load_pack<Row::kPack>(s + place<Row::kPack>(h));
    Pack<T, Row::kPack> d;
    MIXTAPE_UNROLL
    for (int i = 0; i < Row::kPack; ++i) {
      const float v = weight * (softmax_at_log2(to_f32(in.v[i]), p.inv_t, s_max, s_log) -
                                softmax_at_log2(to_f32(t.packs[h].v[i]), p.inv_t, t_max, t_log));
      d.v[i] = from_f32<T>(weight != 0.0f ? v : 0.0f);
    }
    store_pack(out + h * r.step, d);
  }
}

#define BOTH(T, SIZE, HELD, BLOCKS)                                                               \
  MIXTAPE_CLUSTER_KERNEL(kl_div_forward_backward_##T##_cluster##SIZE##_##HELD, SIZE, 512, BLOCKS, \
                         KlDivParams p, Global<const T> teacher, Global<const T> student,         \
                         Global<const float> dloss, Global<float> loss, Global<T> dstudent) {     \
    MIXTAPE_SHARED(float, parts, 5 * kClusterParts);                                              \
    MIXTAPE_SHARED_DYNAMIC(T, memory);                                                            \
    kl_div_cluster<T, SIZE, HELD>(p, teacher, student, dloss, loss, dstudent, memory, parts);     \
  }
MIXTAPE_CLUSTER_SHAPES(BOTH)

}  // namespace mixtape
