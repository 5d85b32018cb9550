#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/softmax/softmax_cpu.cpp"
#include <algorithm>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/scratch.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/softmax/softmax_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// A row is read from memory once, in blocks whose numerators stay in the first-level cache.
inline constexpr std::size_t kBlock = 4096;

struct Block {
  float max, sum;
};

// e[c] = exp(x[c] - the block's largest), and their sum. Where all are -inf, e is 0.
template <class T>
Block numerators(const T* x, float* e, std::size_t n) {
  const float max = max_of(x, n);
  const Floats shift = set(max == -HUGE_VALF ? 0.0f : max);
  Floats sum0 = zero(), sum1 = zero();
  std::size_t c = 0;
  for (; c + 2 * lanes() <= n; c += 2 * lanes()) {
    __builtin_prefetch(x + c + n);
    const Floats e0 = exp_down(hn::Sub(load(x + c), shift)),
                 e1 = exp_down(hn::Sub(load(x + c + lanes()), shift));
    __builtin_prefetch(x + c + n + lanes());
    store(e0, e + c);
    store(e1, e + c + lanes());
    sum0 = hn::Add(sum0, e0);
    sum1 = hn::Add(sum1, e1);
  }
  for (; c < n; c += lanes()) {
    const Floats e0 = keep_first(exp_down(hn::Sub(load(x + c, n - c), shift)), n - c, zero());
    store(e0, e + c, n - c);
    sum0 = hn::Add(sum0, e0);
  }
  return {max, sum_lanes(hn::Add(sum0, sum1))};
}

template <class T>
void scale_block(const float* e, float factor, T* y, std::size_t n, bool is_large) {
  for_each_step(n, is_large, [&](std::size_t c, auto step) HWY_ATTR {
    step.store(hn::Mul(step.load(e + c), set(factor)), y + c);
  });
}

// e [cols] and blocks, one for every kBlock columns, are working memory.
template <class T>
void softmax_row(const T* x, float* e, Block* blocks, T* y, std::size_t cols, bool is_large) {
  float max = -HUGE_VALF, sum = 0.0f;
  for (std::size_t c = 0; c < cols; c += kBlock) {
    blocks[c / kBlock] = numerators(x + c, e + c, std::min(kBlock, cols - c));
    max = std::max(max, blocks[c / kBlock].max);
  }
  for (std::size_t c = 0; c < cols; c += kBlock) {
    const Block& block = blocks[c / kBlock];
    sum += block.sum * exp_down(block.max - max);
  }
  for (std::size_t c = 0; c < cols; c += kBlock) {
    const float factor = exp_down(blocks[c / kBlock].max - max) / sum;
    scale_block(e + c, factor, y + c, std::min(kBlock, cols - c), is_large);
  }
}

template <class T>
void softmax_forward(const HostCall& call) {
  const auto& p = call.params<SoftmaxParams>();
  const T* x = call.read<T>(0);
  T* y = call.write<T>(0);
  const auto cols = static_cast<std::size_t>(p.cols);
  const bool is_large = streams(y, p.rows, p.cols);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    static thread_local cpu::Scratch numerator_memory, block_memory;
    float* e = numerator_memory.get<float>(cols);
    Block* blocks = block_memory.get<Block>(cols / kBlock + 1);
    for (std::int64_t r = begin; r < end; ++r)
      softmax_row(x + r * p.cols, e, blocks, y + r * p.cols, cols, is_large);
  });
}
MIXTAPE_SIMD_KERNEL(softmax_forward)

template <class T>
void softmax_backward_row(const T* y, const T* dy, T* dx, std::size_t cols, bool accumulate, bool is_large) {
  const Floats dot = set(dot_of(y, dy, cols));
  for_each_step(cols, is_large, [&](std::size_t c, auto step) HWY_ATTR {
    const Floats d = hn::Mul(step.load(y + c), hn::Sub(step.load(dy + c), dot));
    step.store(accumulate ? hn::Add(step.load(dx + c), d) : d, dx + c);
  });
}

template <class T>
void softmax_backward(const HostCall& call) {
  const auto& p = call.params<SoftmaxParams>();
  const T* y = call.read<T>(0);
  const T* dy = call.read<T>(1);
  T* dx = call.write<T>(0);
  const bool accumulate = p.accumulate != 0, is_large = !accumulate && streams(dx, p.rows, p.cols);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t at = r * p.cols;
      softmax_backward_row(y + at, dy + at, dx + at, static_cast<std::size_t>(p.cols), accumulate, is_large);
    }
  });
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
