#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/core/mix.h"
#include "mixtape/ops/sampling/sampling_params.h"
#include "mixtape/runtime/kernel_registry.h"

namespace mixtape {
namespace {

// The place of the largest, the lowest of several; of the first NaN where there is one.
template <class T>
std::int64_t place_of_largest(const T* x, std::int64_t cols) {
  std::int64_t place = 0;
  auto largest = static_cast<float>(x[0]);
  for (std::int64_t c = 1; c < cols && !std::isnan(largest); ++c) {
    const auto v = static_cast<float>(x[c]);
    if (v <= largest) continue;
    largest = v;
    place = c;
  }
  return place;
}

template <class T>
void argmax_forward(const HostCall& call) {
  const auto& p = call.params<SamplingParams>();
  const T* x = call.read<T>(0);
  auto* indices = call.write<std::uint32_t>(0);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      indices[r] = static_cast<std::uint32_t>(place_of_largest(x + r * p.cols, p.cols));
  });
}
MIXTAPE_HOST_KERNEL("argmax_forward_f32", argmax_forward<float>);
MIXTAPE_HOST_KERNEL("argmax_forward_bf16", argmax_forward<bf16>);
MIXTAPE_HOST_KERNEL("argmax_forward_f16", argmax_forward<f16>);

// The steps of number `count`, from 1 on, in ascending order.
std::uint32_t steps_of(std::vector<std::uint32_t> steps, std::uint64_t count) {
  const auto place = steps.begin() + static_cast<std::ptrdiff_t>(count - 1);
  std::nth_element(steps.begin(), place, steps.end());
  return *place;
}

// Of entries with at most `most` steps, those of the last that takes part: the ones with fewer have not reached top_p.
// Takes the nearest out of a heap until they have.
std::uint32_t last_steps(const std::vector<std::uint32_t>& steps, std::uint32_t most, std::uint64_t top_p) {
  std::vector<std::uint32_t> heap;
  std::uint64_t total = 0;
  for (const std::uint32_t s : steps) {
    if (s == kNoSteps || s > most) continue;
    heap.push_back(s);
    total += draw_weight(s);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const std::uint64_t wanted = std::max<std::uint64_t>(multiply_high(total, top_p), 1);
  std::uint64_t reached = 0;
  while (true) {
    const std::uint32_t nearest = heap.front();
    reached += draw_weight(nearest);
    if (reached >= wanted) return nearest;
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
  }
}

// The column at which the weights of those up to `last` pass the draw.
std::int64_t draw(const std::vector<std::uint32_t>& steps, std::uint32_t last, std::uint64_t random) {
  std::uint64_t total = 0;
  for (const std::uint32_t s : steps) total += s <= last ? draw_weight(s) : 0;
  std::uint64_t left = multiply_high(total, random);
  for (std::size_t c = 0;; ++c) {
    const std::uint64_t weight = steps[c] <= last ? draw_weight(steps[c]) : 0;
    if (left < weight) return static_cast<std::int64_t>(c);
    left -= weight;
  }
}

template <class T>
std::int64_t sample_row(const SamplingParams& p, const T* x, std::uint64_t random,
                        std::vector<std::uint32_t>& steps) {
  const std::int64_t place = place_of_largest(x, p.cols);
  const auto max = static_cast<float>(x[place]);
  if (std::isnan(max)) return place;
  for (std::int64_t c = 0; c < p.cols; ++c) {
    const auto v = static_cast<float>(x[c]);
    steps[static_cast<std::size_t>(c)] = v == max ? 0 : draw_steps((max - v) * p.factor);
  }
  auto last = static_cast<std::uint32_t>(p.most_steps);
  if (p.top_k > 0) last = std::min(last, steps_of(steps, p.top_k));
  if (p.cuts_tail) last = last_steps(steps, last, p.top_p);
  return draw(steps, last, random);
}

template <class T>
void sample_forward(const HostCall& call) {
  const auto& p = call.params<SamplingParams>();
  const T* x = call.read<T>(0);
  auto* indices = call.write<std::uint32_t>(0);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::uint32_t> steps(static_cast<std::size_t>(p.cols));
    for (std::int64_t r = begin; r < end; ++r) {
      const std::uint64_t random = mix_bits(p.seed + (static_cast<std::uint64_t>(r) << 32) + p.step);
      indices[r] = static_cast<std::uint32_t>(sample_row(p, x + r * p.cols, random, steps));
    }
  });
}
MIXTAPE_HOST_KERNEL("sample_forward_f32", sample_forward<float>);
MIXTAPE_HOST_KERNEL("sample_forward_bf16", sample_forward<bf16>);
MIXTAPE_HOST_KERNEL("sample_forward_f16", sample_forward<f16>);

}  // namespace
}  // namespace mixtape
