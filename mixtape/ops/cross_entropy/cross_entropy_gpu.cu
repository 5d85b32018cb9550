#include "mixtape/ops/cross_entropy/cross_entropy_row_gpu.h"

namespace mixtape {

constexpr int kLogitsPacks = 4;  // of a row that a thread holds

template <int N, class T>
MIXTAPE_DEVICE LogSum row_log_sum(Global<const T> row, std::int64_t cols) {
  const std::int64_t step = static_cast<std::int64_t>(threads_x()) * N;
  LogSum s{minus_infinity(), 0.0f};
  for (std::int64_t at = static_cast<std::int64_t>(thread_x()) * N; at < cols; at += kLogitsPacks * step) {
    Run<T, N, kLogitsPacks> run;
    load_run(row, at, step, cols, run);
    add_run(s, run, 1.0f);
  }
  return s;
}

// A block per row, which is read once.
template <class T>
MIXTAPE_DEVICE void cross_entropy_forward(const CrossEntropyParams& p, Global<const T> x,
                                          Global<const std::uint32_t> targets, Global<float> loss,
                                          Global<float> lse, Global<std::uint64_t> errors,
                                          Shared<float> scratch) {
  constexpr int kPack = PackOf<T, T>::kWidth;
  const std::int64_t row = block_x();
  const std::int64_t target = target_of(p, targets, row, errors, thread_x() == 0);
  if (target < 0) {
    if (thread_x() == 0) loss[row] = lse[2 * row] = lse[2 * row + 1] = 0.0f;
    return;
  }
  const Global<const T> logits = x + row * p.cols;
  const bool is_dense = is_aligned(x, 16) && p.cols % kPack == 0;
  const LogSum mine = is_dense ? row_log_sum<kPack>(logits, p.cols) : row_log_sum<1>(logits, p.cols);
  const LogSum all = block_log_sum(mine, scratch);
  if (thread_x() != 0) return;
  const float log_sum = log_f32(all.sum);
  lse[2 * row] = all.max;
  lse[2 * row + 1] = log_sum;
  loss[row] = (all.max - to_f32(logits[target])) + log_sum;
}

#define FORWARD(T)                                                                           \
  MIXTAPE_KERNEL(cross_entropy_forward_##T, 512, CrossEntropyParams p, Global<const T> x,    \
                 Global<const std::uint32_t> targets, Global<float> loss, Global<float> lse, \
                 Global<std::uint64_t> errors) {                                             \
    await_earlier();                                                                         \
    MIXTAPE_SHARED(float, scratch, 32);                                                      \
    cross_entropy_forward<T>(p, x, targets, loss, lse, errors, scratch);                     \
  }
MIXTAPE_VALUE_KERNELS(FORWARD)

// Several blocks share a row.
template <int N, class T>
MIXTAPE_DEVICE void gradient_row(const CrossEntropyRow& r, bool accumulate, std::int64_t block,
                                 std::int64_t blocks, std::int64_t cols, Global<const T> x, Global<T> dx) {
  const std::int64_t step = static_cast<std::int64_t>(threads_x()) * N;
  for (std::int64_t at = block * kLogitsPacks * step + static_cast<std::int64_t>(thread_x()) * N; at < cols;
       at += blocks * kLogitsPacks * step) {
    Run<T, N, kLogitsPacks> run;
    if (r.target >= 0) load_run(x, at, step, cols, run);
    MIXTAPE_UNROLL
    for (int h = 0; h < kLogitsPacks; ++h) {
      const std::int64_t c = at + h * step;
      if (c < cols) store_gradient(r, accumulate, c, run.packs[h], dx + c);
    }
  }
}

template <class T>
MIXTAPE_DEVICE void cross_entropy_backward(const CrossEntropyParams& p, Global<const T> x,
                                           Global<const std::uint32_t> targets, Global<const float> lse,
                                           Global<const float> dloss, Global<T> dx,
                                           Global<std::uint64_t> errors) {
  constexpr int kPack = PackOf<T, T>::kWidth;
  const std::int64_t blocks = blocks_x() / p.rows, row = block_x() / blocks, block = block_x() % blocks;
  CrossEntropyRow r{target_of(p, targets, row, errors, block == 0 && thread_x() == 0), 0.0f, 0.0f,
                    dloss[row]};
  if (r.dloss == 0.0f) r.target = -1;
  if (r.target < 0 && p.accumulate != 0) return;
  if (r.target >= 0) {
    r.max = finite_max(lse[2 * row]);
    r.log_sum = lse[2 * row + 1];
  }
  const Global<const T> in = x + row * p.cols;
  const Global<T> out = dx + row * p.cols;
  if (is_aligned(x, 16) && is_aligned(dx, 16) && p.cols % kPack == 0) {
    gradient_row<kPack>(r, p.accumulate != 0, block, blocks, p.cols, in, out);
  } else {
    gradient_row<1>(r, p.accumulate != 0, block, blocks, p.cols, in, out);
  }
}

#define BACKWARD(T)                                                                                       \
  MIXTAPE_KERNEL(cross_entropy_backward_##T, 256, CrossEntropyParams p, Global<const T> x,                \
                 Global<const std::uint32_t> targets, Global<const float> lse, Global<const float> dloss, \
                 Global<T> dx, Global<std::uint64_t> errors) {                                            \
    await_earlier();                                                                                      \
    cross_entropy_backward<T>(p, x, targets, lse, dloss, dx, errors);                                     \
  }
MIXTAPE_VALUE_KERNELS(BACKWARD)

}  // namespace mixtape
