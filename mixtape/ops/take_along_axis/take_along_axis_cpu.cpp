#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/take_along_axis/take_along_axis_cpu.cpp"
#include <algorithm>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/scratch.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/take_along_axis/take_along_axis_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {
namespace {

// The bits of a negative index are at `limit` or above, like those of one beyond the row.
struct Indices {
  Indices(const HostCall& call, std::size_t slot, const TakeAlongAxisParams& p)
      : bits(call.read<std::uint32_t>(slot)),
        is_signed(p.index_is_signed != 0),
        limit(std::min(p.cols, std::int64_t{1} << (is_signed ? 31 : 32))) {}
  std::int64_t value(std::int64_t i) const {
    return is_signed ? std::int64_t{static_cast<std::int32_t>(bits[i])} : std::int64_t{bits[i]};
  }
  bool is_good(std::int64_t i) const { return bits[i] < limit; }
  const std::uint32_t* bits;
  bool is_signed;
  std::int64_t limit;
};

void report_bad(const HostCall& call, const TakeAlongAxisParams& p, const Indices& index, std::int64_t begin,
                std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    if (!index.is_good(i)) call.report_index(i, index.value(i), p.cols);
  }
}

// The row that is this much further on is fetched meanwhile.
inline constexpr std::int64_t kAhead = 16;

// y = row `row` of the result. False where an index was out of range.
template <class T>
bool take_row(const T* x, const Indices index, std::int64_t row, const TakeAlongAxisParams& p, T* y) {
  const std::int64_t k = p.k;
  const std::uint32_t* at = index.bits + row * k;
  const T* from = x + row * p.cols;
  bool all_good = true;
  for (std::int64_t j = 0; j < k; ++j) {
    const bool is_good = at[j] < index.limit;
    const T value = from[is_good ? at[j] : 0];
    y[j] = is_good ? value : T(0.0f);
    all_good &= is_good;
  }
  if (row + kAhead < p.rows) {
    for (std::int64_t j = 0; j < k; ++j) __builtin_prefetch(from + kAhead * p.cols + at[kAhead * k + j]);
  }
  return all_good;
}

// False where an index was out of range.
template <class T>
bool add_row(const TakeAlongAxisParams& p, const Indices index, std::int64_t first, const T* dy,
             float* sums) {
  bool all_good = true;
  for (std::int64_t i = first; i < first + p.k; ++i) {
    const bool is_good = index.is_good(i);
    if (is_good) sums[index.bits[i]] += static_cast<float>(dy[i]);
    all_good &= is_good;
  }
  return all_good;
}

// `sums` holds zeros afterwards. An index that repeats finds its sum only once.
template <class T>
void accumulate_row(const TakeAlongAxisParams& p, const Indices index, std::int64_t first, T* dx,
                    float* sums) {
  for (std::int64_t i = first; i < first + p.k; ++i) {
    if (!index.is_good(i) || sums[index.bits[i]] == 0.0f) continue;
    T& d = dx[index.bits[i]];
    d = T(static_cast<float>(d) + sums[index.bits[i]]);
    sums[index.bits[i]] = 0.0f;
  }
}

template <class T>
void write_row(const TakeAlongAxisParams& p, const Indices index, std::int64_t first, T* dx, float* sums,
               bool is_large) {
  const auto cols = static_cast<std::size_t>(p.cols);
  for_each_step(cols, is_large,
                [&](std::size_t c, auto step) HWY_ATTR { step.store(step.load(sums + c), dx + c); });
  for (std::int64_t i = first; i < first + p.k; ++i) {
    if (index.is_good(i)) sums[index.bits[i]] = 0.0f;
  }
}

template <class T>
void finish_row(const TakeAlongAxisParams& p, const Indices index, std::int64_t first, T* dx, float* sums,
                bool is_large) {
  if (p.accumulate != 0) return accumulate_row(p, index, first, dx, sums);
  write_row(p, index, first, dx, sums, is_large);
}

}  // namespace

template <class T>
void take_along_axis_forward(const HostCall& call) {
  const auto& p = call.params<TakeAlongAxisParams>();
  const T* x = call.read<T>(0);
  const Indices index(call, 1, p);
  T* y = call.write<T>(0);
  cpu::parallel_for(p.rows, cpu::row_grain(p.k), [&](std::int64_t begin, std::int64_t end) {
    bool all_good = true;
    for (std::int64_t r = begin; r < end; ++r) {
      all_good &= take_row(x, index, r, p, y + r * p.k);
    }
    if (!all_good) report_bad(call, p, index, begin * p.k, end * p.k);
  });
}
MIXTAPE_SIMD_KERNEL(take_along_axis_forward)

template <class T>
void take_along_axis_backward(const HostCall& call) {
  const auto& p = call.params<TakeAlongAxisParams>();
  const T* dy = call.read<T>(0);
  const Indices index(call, 1, p);
  T* dx = call.write<T>(0);
  const bool is_large = p.accumulate == 0 && streams(dx, p.rows, p.cols);
  const std::int64_t grain = std::max<std::int64_t>(8, cpu::row_grain(p.cols));
  const std::int64_t block = std::max<std::int64_t>(1, 4096 / p.cols);
  cpu::parallel_for(p.rows, grain, [&](std::int64_t begin, std::int64_t end) {
    static thread_local cpu::Scratch memory;
    float* sums = memory.get<float>(static_cast<std::size_t>(block * p.cols));
    std::fill(sums, sums + block * p.cols, 0.0f);
    bool all_good = true;
    for (std::int64_t first = begin; first < end; first += block) {
      const std::int64_t last = std::min(first + block, end);
      for (std::int64_t r = first; r < last; ++r) {
        all_good &= add_row(p, index, r * p.k, dy, sums + (r - first) * p.cols);
      }
      for (std::int64_t r = first; r < last; ++r) {
        finish_row(p, index, r * p.k, dx + r * p.cols, sums + (r - first) * p.cols, is_large);
      }
    }
    if (!all_good) report_bad(call, p, index, begin * p.k, end * p.k);
  });
}
MIXTAPE_SIMD_KERNEL(take_along_axis_backward)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(take_along_axis_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(take_along_axis_backward)
}  // namespace mixtape
#endif
