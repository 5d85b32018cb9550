// The full form: both rows are read once by the forward, once by the backward.
#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/kl_div/kl_sums_gpu.h"

namespace mixtape {

constexpr int kKlPacks = 2;  // of either row that a thread holds

// Whether rows of both can be moved N elements at a time.
template <int N, class T, class S>
MIXTAPE_DEVICE bool are_dense(Global<T> teacher, Global<S> student, std::int64_t cols) {
  return is_aligned(teacher, 16) && is_aligned(student, 16) && cols % N == 0;
}

template <int N, class T, class S>
MIXTAPE_DEVICE KlSums row_sums(Global<const T> teacher, Global<const S> student, std::int64_t cols,
                               float scale) {
  const std::int64_t step = static_cast<std::int64_t>(threads_x()) * N;
  KlSums k = no_sums();
  for (std::int64_t at = static_cast<std::int64_t>(thread_x()) * N; at < cols; at += kKlPacks * step) {
    Run<T, N, kKlPacks> t;
    Run<S, N, kKlPacks> s;
    load_run(teacher, at, step, cols, t);
    load_run(student, at, step, cols, s);
    add_runs(k, t, s, scale);
  }
  return k;
}

template <int N, class T, class S>
MIXTAPE_DEVICE NearSums near_row_sums(Global<const T> teacher, Global<const S> student, std::int64_t cols,
                                      float scale, const KlSums& all) {
  const std::int64_t step = static_cast<std::int64_t>(threads_x()) * N;
  NearSums k{0.0f, 0.0f};
  for (std::int64_t at = static_cast<std::int64_t>(thread_x()) * N; at < cols; at += kKlPacks * step) {
    Run<T, N, kKlPacks> t;
    Run<S, N, kKlPacks> s;
    load_run(teacher, at, step, cols, t);
    load_run(student, at, step, cols, s);
    add_near_runs(k, all, t, s, scale);
  }
  return k;
}

// A block per row.
template <class T, class S>
MIXTAPE_DEVICE void kl_div_forward(const KlDivParams& p, Global<const T> teacher, Global<const S> student,
                                   Global<float> loss, Global<float> stats, Shared<float> scratch) {
  constexpr int kPack = PackOf<T, S>::kWidth;
  const std::int64_t row = block_x();
  const Global<const T> t = teacher + row * p.cols;
  const Global<const S> s = student + row * p.cols;
  const bool is_dense = are_dense<kPack>(teacher, student, p.cols);
  const KlSums mine = is_dense ? row_sums<kPack>(t, s, p.cols, p.inv_t) : row_sums<1>(t, s, p.cols, p.inv_t);
  const KlSums all = block_sums(mine, scratch);
  KlRow r;
  float value = kl_loss(all, r);
  if (value < kNearLoss) {
    const NearSums near = is_dense ? near_row_sums<kPack>(t, s, p.cols, p.inv_t, all)
                                   : near_row_sums<1>(t, s, p.cols, p.inv_t, all);
    value = near_loss(all, block_near_sums(near, scratch));
  }
  if (thread_x() != 0) return;
  loss[row] = value;
  store_row(stats, row, r);
}

#define FORWARD(T, S)                                                                   \
  MIXTAPE_KERNEL(kl_div_forward_##T##_##S, 512, KlDivParams p, Global<const T> teacher, \
                 Global<const S> student, Global<float> loss, Global<float> stats) {    \
    await_earlier();                                                                    \
    MIXTAPE_SHARED(float, scratch, 32);                                                 \
    kl_div_forward<T, S>(p, teacher, student, loss, stats, scratch);                    \
  }
MIXTAPE_VALUE_PAIRS(FORWARD)

// Several blocks share a row. weight 0: nothing is read, the gradient is 0.
template <int N, class T, class S>
MIXTAPE_DEVICE void kl_gradient_row(const KlDivParams& p, const KlRow& r, float weight, std::int64_t block,
                                    std::int64_t blocks, Global<const T> teacher, Global<const S> student,
                                    Global<S> out) {
  const std::int64_t step = static_cast<std::int64_t>(threads_x()) * N;
  for (std::int64_t at = block * kKlPacks * step + static_cast<std::int64_t>(thread_x()) * N; at < p.cols;
       at += blocks * kKlPacks * step) {
    Run<T, N, kKlPacks> t;
    Run<S, N, kKlPacks> s;
    if (weight != 0.0f) {
      load_run(teacher, at, step, p.cols, t);
      load_run(student, at, step, p.cols, s);
    }
    MIXTAPE_UNROLL
    for (int h = 0; h < kKlPacks; ++h) {
      const std::int64_t c = at + h * step;
      if (c >= p.cols) break;
      Pack<S, N> d;
      if (p.accumulate != 0) d = load_pack<N>(out + c);
      MIXTAPE_UNROLL
      for (int i = 0; i < N; ++i) {
        float v = 0.0f;
        if (weight != 0.0f) {
          v = weight * (softmax_at(to_f32(s.packs[h].v[i]), p.inv_t, r.s_max, r.s_log) -
                        softmax_at(to_f32(t.packs[h].v[i]), p.inv_t, r.t_max, r.t_log));
        }
        d.v[i] = from_f32<S>(p.accumulate != 0 ? to_f32(d.v[i]) + v : v);
      }
      store_pack(out + c, d);
    }
  }
}

template <class T, class S>
MIXTAPE_DEVICE void kl_div_backward(const KlDivParams& p, Global<const T> teacher, Global<const S> student,
                                    Global<const float> stats, Global<const float> dloss, Global<S> out) {
  constexpr int kPack = PackOf<T, S>::kWidth;
  const std::int64_t blocks = blocks_x() / p.rows, row = block_x() / blocks, block = block_x() % blocks;
  const float weight = dloss[row] * p.inv_t;
  if (weight == 0.0f && p.accumulate != 0) return;
  const KlRow r = load_row(stats, row);
  const std::int64_t first = row * p.cols;
  if (are_dense<kPack>(teacher, student, p.cols) && is_aligned(out, 16)) {
    kl_gradient_row<kPack>(p, r, weight, block, blocks, teacher + first, student + first, out + first);
  } else {
    kl_gradient_row<1>(p, r, weight, block, blocks, teacher + first, student + first, out + first);
  }
}

#define BACKWARD(T, S)                                                                          \
  MIXTAPE_KERNEL(kl_div_backward_##T##_##S, 256, KlDivParams p, Global<const T> teacher,        \
                 Global<const S> student, Global<const float> stats, Global<const float> dloss, \
                 Global<S> out) {                                                               \
    await_earlier();                                                                            \
    kl_div_backward<T, S>(p, teacher, student, stats, dloss, out);                              \
  }
MIXTAPE_VALUE_PAIRS(BACKWARD)

}  // namespace mixtape
