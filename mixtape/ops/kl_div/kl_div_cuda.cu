// sm_90a alone.
// Loss and gradient of a pair of rows that a cluster holds: each is read once, and the next ones are fetched meanwhile.
#include "mixtape/backend/gpu/logits_cluster.h"
#include "mixtape/ops/kl_div/kl_sums_gpu.h"

namespace mixtape {

// Powers of a thread's first packs, 2^t_log and 2^s_log of its warp, for the gradient: as many as registers hold. Half of
// the time is the exponential units'.
template <class T>
struct KeptPowers {
  static constexpr int kPacks = sizeof(T) == 2 ? 2 : 0, kPack = 16 / static_cast<int>(sizeof(T));
  float t[kPacks > 0 ? kPacks : 1][kPack], s[kPacks > 0 ? kPacks : 1][kPack];
  bool are_there;
  FoldedLog t_log, s_log;
};

// The entries of a thread. Exponents are logarithms to base 2, and what they share with their whole row is still in the
// sums. Without Guarded a teacher's probability of 0 beside an infinite logit makes the gap a NaN.
template <bool Guarded, class T, int Size, int Held, class Log>
MIXTAPE_DEVICE void add_entries(const ClusterRow<T, Size, Held>& r, KlSums& sums, Shared<T> teacher,
                                Shared<T> student, const Log& t_log, const Log& s_log, KeptPowers<T>& kept) {
  constexpr int kPack = ClusterRow<T, Size, Held>::kPack;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (!r.has(h)) break;
    const Pack<T, kPack> t_pack = load_pack<kPack>(teacher + r.place(h)),
                         s_pack = load_pack<kPack>(student + r.place(h));
    KlSums part = no_sums();
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i) {
      const float t = t_log(to_f32(t_pack.v[i])), s = s_log(to_f32(s_pack.v[i]));
      const float p = exp2_fast(t), q = exp2_fast(s);
      if (h < kept.kPacks) {
        kept.t[h][i] = p;
        kept.s[h][i] = q;
      }
      part.t_sum += p;
      part.s_sum += q;
      if (!Guarded || p > 0.0f) part.gap = fma_f32(p, t - s, part.gap);
    }
    sums.t_sum += part.t_sum;
    sums.s_sum += part.s_sum;
    sums.gap += part.gap;
  }
}

template <class T, int Size, int Held>
MIXTAPE_DEVICE float warp_max_of(const ClusterRow<T, Size, Held>& r, Shared<T> row) {
  Run<T, ClusterRow<T, Size, Held>::kPack, Held> held;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h)
    held.packs[h] = load_pack<ClusterRow<T, Size, Held>::kPack>(row + r.place(h));
  return warp_max(held);
}

// Over the warp, the same in every lane.
template <class T, int Size, int Held>
MIXTAPE_DEVICE KlSums warp_sums(const ClusterRow<T, Size, Held>& r, Shared<T> teacher, Shared<T> student,
                                float scale, KeptPowers<T>& kept) {
  const KlSums none{scale * warp_max_of(r, teacher), scale * warp_max_of(r, student), 0.0f, 0.0f, 0.0f};
  lane_barrier();  // what was read before is read again, not kept
  const PlainLog t_plain = plain_log(scale, none.t_max), s_plain = plain_log(scale, none.s_max);
  const FoldedLog t_log = folded_log(t_plain), s_log = folded_log(s_plain);
  float t_shared = shared_part(t_log, t_plain), s_shared = shared_part(s_log, s_plain);
  KlSums sums = none;
  bool is_plain = !folds<T>(t_plain) || !folds<T>(s_plain);
  if (!is_plain) {
    add_entries<false>(r, sums, teacher, student, t_log, s_log, kept);
    is_plain = lane_ballot(!(abs_f32(sums.gap) < 1e30f)) != 0;
  }
  if (is_plain) {
    t_shared = s_shared = 0.0f;
    sums = none;
    add_entries<true>(r, sums, teacher, student, t_plain, s_plain, kept);
  }
  kept.are_there = !is_plain;
  kept.t_log = t_log;
  kept.s_log = s_log;
  const float factor = exp2_fast(-t_shared);
  sums.gap = lane_sum(factor * kLn2 * fma_f32(s_shared - t_shared, sums.t_sum, sums.gap));
  sums.t_sum = lane_sum(factor * sums.t_sum);
  sums.s_sum = lane_sum(exp2_fast(-s_shared) * sums.s_sum);
  return sums;
}

// Over the cluster, the same in every thread.
template <int Size, int Warps>
MIXTAPE_DEVICE KlSums cluster_sums(const KlSums& mine, ClusterMeeting<Size, Warps, 5>& meeting) {
  meeting.give(0, mine.t_max);
  meeting.give(1, mine.s_max);
  meeting.give(2, mine.t_sum);
  meeting.give(3, mine.s_sum);
  meeting.give(4, mine.gap);
  meeting.await();
  KlSums all = no_sums();
  meeting.for_parts([&](int i) {
    all.t_max = max_f32(all.t_max, meeting.of(0)[i]);
    all.s_max = max_f32(all.s_max, meeting.of(1)[i]);
  });
  all.t_max = lane_max(all.t_max);
  all.s_max = lane_max(all.s_max);
  meeting.for_parts([&](int i) {
    KlSums part{meeting.of(0)[i], meeting.of(1)[i], meeting.of(2)[i], meeting.of(3)[i], meeting.of(4)[i]};
    move_maxima(part, all.t_max, all.s_max);
    all.t_sum += part.t_sum;
    all.s_sum += part.s_sum;
    all.gap += part.gap;
  });
  ++meeting.turn;
  all.t_sum = lane_sum(all.t_sum);
  all.s_sum = lane_sum(all.s_sum);
  all.gap = lane_sum(all.gap);
  return all;
}

// Over the cluster, as cluster_sums.
template <class T, int Size, int Held>
MIXTAPE_DEVICE NearSums cluster_near_sums(const ClusterRow<T, Size, Held>& r, Shared<T> teacher,
                                          Shared<T> student, float scale, const KlSums& all,
                                          ClusterMeeting<Size, kWarps<T>, 2>& meeting) {
  constexpr int kPack = ClusterRow<T, Size, Held>::kPack;
  NearSums mine{0.0f, 0.0f};
  for (int h = 0; h < Held && r.has(h); ++h) {
    const Run<T, kPack, 1> t{{load_pack<kPack>(teacher + r.place(h))}},
        s{{load_pack<kPack>(student + r.place(h))}};
    add_near_runs(mine, all, t, s, scale);
  }
  meeting.give(0, lane_sum(mine.gap));
  meeting.give(1, lane_sum(mine.excess));
  meeting.await();
  NearSums sum{0.0f, 0.0f};
  meeting.for_parts([&](int i) {
    sum.gap += meeting.of(0)[i];
    sum.excess += meeting.of(1)[i];
  });
  ++meeting.turn;
  return NearSums{lane_sum(sum.gap), lane_sum(sum.excess)};
}

// What a thread has of a pair of rows, and where the next pair comes from.
template <class T>
struct Landed {
  Shared<T> teacher, student;
  Global<const T> next_teacher, next_student;
};

// Of powers p and q the gradient factor * (q - ratio * p).
struct GradientScale {
  float ratio, factor;
  MIXTAPE_DEVICE float operator()(float p, float q) const { return factor * fma_f32(-ratio, p, q); }
};

// The gradient of the row's student: 0 where q and p are equal. Of the first Kept packs the powers are there. Packs make
// room for the next row's one after the other.
template <int Kept, class T, int Size, int Held, class Log>
MIXTAPE_DEVICE void put_gradient(const ClusterRow<T, Size, Held>& r, const Landed<T>& rows, const Log& t_log,
                                 const Log& s_log, const GradientScale& scale, const KeptPowers<T>& kept,
                                 const GradientScale& kept_scale, Global<T> out) {
  constexpr int kPack = ClusterRow<T, Size, Held>::kPack;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (!r.has(h)) break;
    Pack<T, kPack> t, s;
    if (h >= Kept) {
      t = load_pack<kPack>(rows.teacher + r.place(h));
      s = load_pack<kPack>(rows.student + r.place(h));
      hide(t);
      hide(s);
    }
    if (r.row + 1 < r.end) {
      copy_pack_async(rows.teacher + r.place(h), rows.next_teacher + h * r.step);
      copy_pack_async(rows.student + r.place(h), rows.next_student + h * r.step);
    }
    Pack<T, kPack> d;
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i) {
      d.v[i] =
          from_f32<T>(h < Kept ? kept_scale(kept.t[h < Kept ? h : 0][i], kept.s[h < Kept ? h : 0][i])
                               : scale(exp2_fast(t_log(to_f32(t.v[i]))), exp2_fast(s_log(to_f32(s.v[i])))));
    }
    store_pack(out + h * r.step, d);
  }
}

// Powers below a warp's maximum that are no more than 2^-60 of those below the row's are made again.
constexpr float kMostShift = 60.0f;

template <class T, int Size, int Held>
MIXTAPE_DEVICE void put_gradient(const ClusterRow<T, Size, Held>& r, const Landed<T>& rows, float scale,
                                 float weight, const KlSums& all, const KeptPowers<T>& kept, Global<T> out) {
  const PlainLog t_plain = plain_log(scale, all.t_max), s_plain = plain_log(scale, all.s_max);
  const GradientScale plain{all.s_sum / all.t_sum, weight / all.s_sum};
  if (!folds<T>(t_plain) || !folds<T>(s_plain))
    return put_gradient<0>(r, rows, t_plain, s_plain, plain, kept, plain, out);
  const FoldedLog t_log = folded_log(t_plain), s_log = folded_log(s_plain);
  const float t_shared = shared_part(t_log, t_plain), s_shared = shared_part(s_log, s_plain);
  const GradientScale folded{exp2_fast(s_shared - t_shared) * plain.ratio,
                             exp2_fast(-s_shared) * plain.factor};
  const float t_shift = t_log.shift - kept.t_log.shift, s_shift = s_log.shift - kept.s_log.shift;
  if (!kept.are_there || !(abs_f32(t_shift) < kMostShift) || !(abs_f32(s_shift) < kMostShift))
    return put_gradient<0>(r, rows, t_log, s_log, folded, kept, folded, out);
  put_gradient<KeptPowers<T>::kPacks>(
      r, rows, t_log, s_log, folded, kept,
      {exp2_fast(s_shift - t_shift) * folded.ratio, exp2_fast(-s_shift) * folded.factor}, out);
}

template <class T, int Size, int Held>
MIXTAPE_DEVICE void kl_div_cluster(const KlDivParams& p, Global<const T> teacher, Global<const T> student,
                                   Global<const float> dloss, Global<float> loss, Global<T> dstudent,
                                   Shared<T> landing_t, ClusterMeeting<Size, kWarps<T>, 5> meeting,
                                   ClusterMeeting<Size, kWarps<T>, 2> near_meeting) {
  using Row = ClusterRow<T, Size, Held>;
  Row r(p.rows, p.cols);
  const Shared<T> landing_s = landing_t + Held * threads_x() * Row::kPack;
  prepare_landing(r, landing_t, minus_infinity());
  prepare_landing(r, landing_s, minus_infinity());
  if (r.row < r.end) {
    fetch_row(r, teacher + r.offset(), landing_t);
    fetch_row(r, student + r.offset(), landing_s);
  }
  cluster_barrier();
  for (; r.row < r.end; ++r.row) {
    const float weight = dloss[r.row] * p.inv_t;
    wait_packs();
    KeptPowers<T> kept;
    const KlSums all = cluster_sums(warp_sums(r, landing_t, landing_s, p.inv_t, kept), meeting);
    KlRow row;
    float value = kl_loss(all, row);
    if (value < kNearLoss)
      value = near_loss(all, cluster_near_sums(r, landing_t, landing_s, p.inv_t, all, near_meeting));
    if (r.first == 0) loss[r.row] = value;
    const Landed<T> rows{landing_t, landing_s, teacher + r.next_offset(), student + r.next_offset()};
    if (weight != 0.0f) {
      put_gradient(r, rows, p.inv_t, weight, all, kept, dstudent + r.offset());
      continue;
    }
    store_zeros(r, dstudent + r.offset());
    if (r.row + 1 == r.end) break;
    fetch_row(r, rows.next_teacher, landing_t);
    fetch_row(r, rows.next_student, landing_s);
  }
}

#define BOTH(T, SIZE, HELD, THREADS, BLOCKS)                                                             \
  MIXTAPE_CLUSTER_KERNEL(kl_div_forward_backward_##T##_cluster##SIZE##_##HELD, SIZE, THREADS, BLOCKS,    \
                         KlDivParams p, Global<const T> teacher, Global<const T> student,                \
                         Global<const float> dloss, Global<float> loss, Global<T> dstudent) {            \
    await_earlier();                                                                                     \
    MIXTAPE_SHARED(float, parts, (ClusterMeeting<SIZE, kWarps<T>, 7>::kFloats));                         \
    MIXTAPE_SHARED(std::uint64_t, arrivals, 4);                                                          \
    MIXTAPE_SHARED_DYNAMIC(T, memory);                                                                   \
    kl_div_cluster<T, SIZE, HELD>(p, teacher, student, dloss, loss, dstudent, memory, {parts, arrivals}, \
                                  {parts + ClusterMeeting<SIZE, kWarps<T>, 5>::kFloats, arrivals + 2});  \
  }
MIXTAPE_CLUSTER_SHAPES(BOTH)

}  // namespace mixtape
