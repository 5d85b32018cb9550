// The k largest entries of each row, without sorting it. The row is split into more than k groups; the k-th
// largest of their maxima is a bound that at least k entries reach, and few more: those are collected, in
// order of index, and the exact k chosen among them.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/kl_div/top_k_targets_cpu.cpp"
#include <array>
#include <bit>
#include <functional>
#include <memory>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/logits-inl.h"
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/kl_div/kl_div_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {
namespace {

// Ascends with the value; NaN above everything, -0 equal to +0.
std::uint32_t order_key(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x + 0.0f);
  const std::uint32_t flip = (0u - (bits >> 31)) | 0x80000000u;
  return x != x ? 0xffffffffu : bits ^ flip;
}

// One histogram over the range of the keys, then the exact order within one bin.
std::uint32_t kth_largest(const std::vector<std::uint32_t>& keys, std::size_t k,
                          std::vector<std::uint32_t>& scratch) {
  constexpr int kBits = 11;
  std::uint32_t low = keys[0], high = keys[0];
  for (const std::uint32_t key : keys) {
    low = std::min(low, key);
    high = std::max(high, key);
  }
  const int shift = std::max(0, static_cast<int>(std::bit_width(high - low)) - kBits);
  std::array<std::uint32_t, 1 << kBits> bins{};
  for (const std::uint32_t key : keys) ++bins[(key - low) >> shift];
  std::size_t bin = (high - low) >> shift;
  for (; bins[bin] < k; --bin) k -= bins[bin];
  scratch.resize(keys.size() + 1);
  std::size_t count = 0;
  for (const std::uint32_t key : keys) {
    scratch[count] = key;
    count += (key - low) >> shift == bin;
  }
  const auto at = scratch.begin() + static_cast<std::ptrdiff_t>(k) - 1;
  std::nth_element(scratch.begin(), at, scratch.begin() + static_cast<std::ptrdiff_t>(count),
                   std::greater<>());
  return *at;
}

// Scratch of one thread. An element more than `cols` per lane: vectors are stored whole.
struct Candidates {
  explicit Candidates(std::size_t cols)
      : values(std::make_unique_for_overwrite<float[]>(cols + lanes())),
        indices(std::make_unique_for_overwrite<std::uint32_t[]>(cols + lanes())) {}
  std::unique_ptr<float[]> values;
  std::unique_ptr<std::uint32_t[]> indices;
  std::vector<float> maxima;
  std::vector<std::uint32_t> keys;
  std::vector<std::uint32_t> scratch;
  std::size_t count = 0;
};

// Maxima of about 3 k groups: a lane of neighbouring vectors. A lane past the end counts as -inf,
// which only lowers the bound.
template <class T>
void collect_maxima(const T* x, std::size_t cols, std::size_t k, std::vector<float>& maxima) {
  const std::size_t step = lanes(), span = std::max<std::size_t>(1, cols / (3 * k)) * step;
  maxima.resize((cols + span - 1) / span * step);
  float* out = maxima.data();
  for (std::size_t begin = 0; begin < cols; begin += span, out += step) {
    const std::size_t end = std::min(cols, begin + span);
    Floats max = set(-HUGE_VALF);
    for (std::size_t i = begin; i < end; i += step) {
      max = hn::Max(max, keep_first(load(x + i, end - i), end - i, set(-HUGE_VALF)));
    }
    store(max, out);
  }
}

template <class T>
void collect_candidates(const T* x, std::size_t cols, float bound, Candidates& c) {
  const UintTag du;
  const Floats low = set(bound);
  c.count = 0;
  for (std::size_t i = 0; i < cols; i += lanes()) {
    const Floats v = load(x + i, cols - i);
    auto reached = hn::Not(hn::Lt(v, low));
    if (cols - i < lanes()) reached = hn::And(reached, hn::FirstN(kF, cols - i));
    if (hn::AllFalse(kF, reached)) continue;
    const auto index = hn::Iota(du, static_cast<std::uint32_t>(i));
    hn::CompressStore(index, hn::RebindMask(du, reached), du, c.indices.get() + c.count);
    c.count += hn::CompressStore(v, reached, kF, c.values.get() + c.count);
  }
}

void make_keys(const float* values, std::size_t count, std::vector<std::uint32_t>& keys) {
  keys.resize(count);
  for (std::size_t i = 0; i < count; ++i) keys[i] = order_key(values[i]);
}

// The k largest candidates, ties by lower index, in order of index.
void choose(Candidates& c, std::size_t k, float* values, std::uint32_t* indices) {
  make_keys(c.values.get(), c.count, c.keys);
  const std::uint32_t last = kth_largest(c.keys, k, c.scratch);
  std::size_t ties = k;
  for (const std::uint32_t key : c.keys) ties -= key > last;
  for (std::size_t i = 0, out = 0; out < k; ++i) {
    const bool is_tie = c.keys[i] == last && ties > 0;
    values[out] = c.values[i];
    indices[out] = c.indices[i];
    out += c.keys[i] > last || is_tie;
    ties -= is_tie;
  }
}

template <class T>
void select_row(const T* x, std::size_t cols, std::size_t k, Candidates& c, float* values,
                std::uint32_t* indices) {
  collect_maxima(x, cols, k, c.maxima);
  make_keys(c.maxima.data(), c.maxima.size(), c.keys);
  const std::uint32_t bound = kth_largest(c.keys, k, c.scratch);
  const std::uint32_t bits = (bound & 0x80000000u) != 0 ? bound & 0x7fffffffu : ~bound;
  collect_candidates(x, cols, std::bit_cast<float>(bits), c);
  choose(c, k, values, indices);
}

}  // namespace

template <class T>
void top_k_targets(const HostCall& call) {
  const auto& p = call.params<KlDivParams>();
  const auto cols = static_cast<std::size_t>(p.cols), k = static_cast<std::size_t>(p.k);
  const T* x = call.read<T>(0);
  const std::int64_t grain = std::max(cpu::row_grain(p.cols), std::min<std::int64_t>(8, p.rows / 16));
  cpu::parallel_for(p.rows, grain, [&](std::int64_t begin, std::int64_t end) {
    Candidates candidates(cols);
    for (std::int64_t r = begin; r < end; ++r) {
      std::uint32_t* indices = call.write<std::uint32_t>(1) + r * p.k;
      select_row(x + r * p.cols, cols, k, candidates, call.write<float>(0) + r * p.k, indices);
      call.write<float>(2)[r] =
          static_cast<float>(logits::rest_log_sum_exp(x + r * p.cols, cols, p.inv_t, indices, k));
    }
  });
}
MIXTAPE_SIMD_KERNEL(top_k_targets)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(top_k_targets)
}  // namespace mixtape
#endif
