#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/softmax/softmax_cpu.cpp"
#include <algorithm>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/rows-inl.h"
#include "mixtape/backend/cpu/scratch.h"
#include "mixtape/ops/softmax/softmax_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// A row is read from memory once, in blocks whose numerators stay in the first-level cache.
inline constexpr std::size_t kBlock = 4096;

struct Block {
  float max, sum;
};

// e[c] = exp(x[c] - the block's largest), and their sum. Where all are -inf, e is 0. With kWrites, y first
// takes factor * e, what is left of the row before: so memory is read and written at the same time. The n
// entries after the block are fetched meanwhile.
template <bool kWrites, class T>
Block numerators(const T* x, float* e, float factor, T* y, std::size_t n, bool is_large) {
  const float max = max_of(x, n);
  const Floats shift = set(max == -HUGE_VALF ? 0.0f : max);
  RowSum sum;
  for_each_step(n, is_large, [&](std::size_t c, auto step) MIXTAPE_SUM_ATTR {
    __builtin_prefetch(x + c + n);
    if constexpr (kWrites) step.store(hn::Mul(step.reload(e + c), set(factor)), y + c);
    const Floats own = step.pad(exp_down(hn::Sub(step.reload(x + c), shift)), zero());
    step.keep(own, e + c);
    sum.add(own);
  });
  return {max, sum.total()};
}

template <class T>
void scale_block(const float* e, float factor, T* y, std::size_t n, bool is_large) {
  for_each_step(n, is_large, [&](std::size_t c, auto step) HWY_ATTR {
    step.store(hn::Mul(step.reload(e + c), set(factor)), y + c);
  });
}

// The largest of a row of blocks, and the sum relative to it.
inline Block joined(const Block* blocks, std::size_t count) {
  Block row{-HUGE_VALF, 0.0f};
  for (std::size_t b = 0; b < count; ++b) row.max = std::max(row.max, blocks[b].max);
  for (std::size_t b = 0; b < count; ++b) row.sum += blocks[b].sum * exp_down(blocks[b].max - row.max);
  return row;
}

// e [cols] and blocks, one for every kBlock columns, are working memory. Where memory is what takes the time,
// a row waits there until the next one is read.
template <class T>
void softmax_rows(const T* x, T* y, std::int64_t rows, std::size_t cols, float* e, Block* blocks,
                  bool is_large) {
  const std::size_t count = (cols + kBlock - 1) / kBlock;
  Block row{0.0f, 1.0f};
  const auto factor = [&](std::size_t b) { return exp_down(blocks[b].max - row.max) / row.sum; };
  for (std::int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    const bool one_waits = is_large && r > 0;
    for (std::size_t b = 0, c = 0; b < count; ++b, c += kBlock) {
      const std::size_t n = std::min(kBlock, cols - c);
      blocks[b] = one_waits ? numerators<true>(x + c, e + c, factor(b), y - cols + c, n, is_large)
                            : numerators<false>(x + c, e + c, 1.0f, y, n, is_large);
    }
    row = joined(blocks, count);
    if (is_large && r + 1 < rows) continue;
    for (std::size_t b = 0, c = 0; b < count; ++b, c += kBlock)
      scale_block(e + c, factor(b), y + c, std::min(kBlock, cols - c), is_large);
  }
}

template <class T>
void softmax_forward(const HostCall& call) {
  const auto& p = call.params<SoftmaxParams>();
  const T* x = call.read<T>(0);
  T* y = call.write<T>(0);
  const auto cols = static_cast<std::size_t>(p.cols);
  const bool is_large = streams(y, p.rows, p.cols);
  cpu::parallel_for(p.rows, cpu::neighbour_grain(p.rows, p.cols), [&](std::int64_t begin, std::int64_t end) {
    static thread_local cpu::Scratch numerator_memory, block_memory;
    float* e = numerator_memory.get<float>(cols);
    Block* blocks = block_memory.get<Block>(cols / kBlock + 1);
    softmax_rows(x + begin * p.cols, y + begin * p.cols, end - begin, cols, e, blocks, is_large);
  });
}
MIXTAPE_SIMD_KERNEL(softmax_forward)

template <class T>
struct SoftmaxBackward {
  const T *y, *dy;
  T* dx;
  std::int64_t cols;
  bool accumulate;
  float dot = 0.0f;

  template <class Step>
  HWY_INLINE void add(std::int64_t r, std::size_t c, Step step, RowSum& sum) const {
    sum.add_product(step.load(y + r * cols + c), step.load(dy + r * cols + c));
  }
  HWY_INLINE void settle(std::int64_t, float sum) { dot = sum; }
  template <class Step>
  HWY_INLINE void write(std::int64_t r, std::size_t c, Step step) const {
    T* to = dx + r * cols + c;
    const Floats d =
        hn::Mul(step.reload(y + r * cols + c), hn::Sub(step.reload(dy + r * cols + c), set(dot)));
    step.store(accumulate ? hn::Add(step.load(to), d) : d, to);
  }
};

template <class T>
void softmax_backward(const HostCall& call) {
  const auto& p = call.params<SoftmaxParams>();
  const T* y = call.read<T>(0);
  const T* dy = call.read<T>(1);
  T* dx = call.write<T>(0);
  const bool accumulate = p.accumulate != 0, is_large = !accumulate && streams(dx, p.rows, p.cols);
  const SoftmaxBackward<T> kernel{y, dy, dx, p.cols, accumulate};
  parallel_rows(p.rows, is_large, kernel);
}
MIXTAPE_SIMD_KERNEL(softmax_backward)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(softmax_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(softmax_backward)
}  // namespace mixtape
#endif
