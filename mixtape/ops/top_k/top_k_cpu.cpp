#include "mixtape/ops/top_k/top_k_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/top_k/top_k_cpu.cpp"
#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/top_k/top_k_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// Integers in the order of the values: -0 as +0, every NaN as the largest. None is the smallest integer.
HWY_INLINE hn::Vec<IntTag> order_keys(Floats x) {
  const IntTag di;
  const auto bits = hn::BitCast(di, hn::Add(x, zero()));
  const auto key = hn::Xor(bits, hn::And(hn::ShiftRight<31>(bits), hn::Set(di, 0x7fffffff)));
  const auto is_nan = hn::RebindMask(di, hn::IsNaN(x));
  return hn::IfThenElse(is_nan, hn::Set(di, std::numeric_limits<std::int32_t>::max()), key);
}

// Key above, complement of the index below: all entries of a row differ, and larger ones come first.
HWY_INLINE std::int64_t make_entry(std::int32_t key, std::size_t index) {
  return static_cast<std::int64_t>(key) * (std::int64_t{1} << 32) +
         static_cast<std::int64_t>(0xffffffffu - static_cast<std::uint32_t>(index));
}
HWY_INLINE std::int32_t key_of(std::int64_t entry) { return static_cast<std::int32_t>(entry >> 32); }
HWY_INLINE std::uint32_t index_of(std::int64_t entry) {
  return 0xffffffffu - static_cast<std::uint32_t>(entry);
}

// Up to this many entries are kept sorted by insertion.
constexpr std::size_t kInsertion = 16;

// The k largest entries so far. Columns come in rising order, so one that only equals the k-th key loses.
class Best {
 public:
  explicit Best(std::size_t k) : k_(k), entries_(k <= kInsertion ? k : 2 * k) {}

  // At least k keys of the next row are above `threshold`.
  void clear(std::int32_t threshold) {
    size_ = 0;
    threshold_ = threshold;
  }
  std::int32_t threshold() const { return threshold_; }  // a key that isn't above it is not wanted

  HWY_INLINE void add(std::int32_t key, std::size_t index) {
    if (key <= threshold_) return;
    if (k_ <= kInsertion) return insert(make_entry(key, index));
    entries_[size_++] = make_entry(key, index);
    if (size_ == entries_.size()) drop_the_rest();
  }

  void finish(std::uint32_t* indices) {
    if (k_ > kInsertion) {
      drop_the_rest();
      std::sort(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(k_), std::greater<>());
    }
    for (std::size_t i = 0; i < k_; ++i) indices[i] = index_of(entries_[i]);
  }

 private:
  HWY_INLINE void insert(std::int64_t entry) {
    std::size_t i = size_ < k_ ? size_++ : k_ - 1;
    for (; i > 0 && entries_[i - 1] < entry; --i) entries_[i] = entries_[i - 1];
    entries_[i] = entry;
    if (size_ == k_) threshold_ = key_of(entries_[k_ - 1]);
  }

  void drop_the_rest() {
    const auto first = entries_.begin();
    const auto kth = first + static_cast<std::ptrdiff_t>(k_) - 1;
    std::nth_element(first, kth, first + static_cast<std::ptrdiff_t>(size_), std::greater<>());
    threshold_ = key_of(*kth);
    size_ = k_;
  }

  std::size_t k_, size_ = 0;
  std::int32_t threshold_ = 0;
  std::vector<std::int64_t> entries_;
};

// One bit per lane. As wide as the store that makes them: a wider load would wait for it.
using LaneBits = std::conditional_t<HWY_MAX_BYTES / sizeof(float) <= 16, std::uint16_t, std::uint64_t>;
template <class Mask>
HWY_INLINE LaneBits lane_bits(Mask mask) {
  std::uint8_t bytes[8] = {};
  hn::StoreMaskBits(IntTag(), mask, bytes);
  LaneBits bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return bits;
}

// A key that at least k <= lanes() of a row's keys are above: among the largest keys of each lane, the k-th.
// Few others are above it.
template <class T>
std::int32_t safe_threshold(const T* x, std::size_t cols, std::size_t k) {
  const IntTag di;
  const auto none = hn::Set(di, std::numeric_limits<std::int32_t>::min());
  auto largest = none;
  std::size_t c = 0;
  for (; c + lanes() <= cols; c += lanes()) largest = hn::Max(largest, order_keys(load(x + c)));
  if (c < cols) {
    const auto last = order_keys(load(x + c, cols - c));
    largest = hn::Max(largest, hn::IfThenElse(hn::FirstN(di, cols - c), last, none));
  }
  HWY_ALIGN std::int32_t keys[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(largest, di, keys);
  auto above = hn::Zero(di);
  for (std::size_t i = 0; i < lanes(); ++i) {
    above = hn::IfThenElse(hn::Gt(hn::Set(di, keys[i]), largest), hn::Add(above, hn::Set(di, 1)), above);
  }
  const auto is_among_k = hn::Lt(above, hn::Set(di, static_cast<std::int32_t>(k)));
  const auto most = hn::Set(di, std::numeric_limits<std::int32_t>::max());
  return hn::GetLane(hn::MinOfLanes(di, hn::IfThenElse(is_among_k, largest, most))) - 1;
}

// Up to this many candidates are ranked by comparing each with each.
constexpr std::size_t kFew = 48;

// The keys above a threshold with their columns, in the order of columns.
struct Candidates {
  HWY_ALIGN std::int32_t keys[kFew + 1 + HWY_MAX_BYTES / sizeof(float)];
  HWY_ALIGN std::int32_t columns[kFew + 1 + HWY_MAX_BYTES / sizeof(float)];
  std::size_t count = 0;
};

// False where there are more than kFew.
template <class T>
bool collect(const T* x, std::size_t cols, std::int32_t threshold, Candidates& out) {
  const IntTag di;
  const auto add = [&](auto keys, auto is_wanted, std::size_t c) HWY_ATTR {
    hn::StoreU(hn::Compress(keys, is_wanted), di, out.keys + out.count);
    hn::StoreU(hn::Compress(hn::Iota(di, static_cast<std::int32_t>(c)), is_wanted), di,
               out.columns + out.count);
    out.count += hn::CountTrue(di, is_wanted);
    return out.count <= kFew;
  };
  const auto limit = hn::Set(di, threshold);
  out.count = 0;
  std::size_t c = 0;
  for (; c + lanes() <= cols; c += lanes()) {
    const auto keys = order_keys(load(x + c));
    if (!add(keys, hn::Gt(keys, limit), c)) return false;
  }
  if (c == cols) return true;
  const auto keys = order_keys(load(x + c, cols - c));
  return add(keys, hn::And(hn::Gt(keys, limit), hn::FirstN(di, cols - c)), c);
}

// A candidate's place is the number of those before it: larger ones, and equal ones further left.
void rank(const Candidates& candidates, std::size_t k, std::uint32_t* indices) {
  const IntTag di;
  HWY_ALIGN std::int32_t places[HWY_MAX_BYTES / sizeof(float)];
  std::int32_t sorted[kFew];
  for (std::size_t first = 0; first < candidates.count; first += lanes()) {
    const auto keys = hn::LoadU(di, candidates.keys + first);
    const auto number = hn::Iota(di, static_cast<std::int32_t>(first));
    auto before = hn::Zero(di);
    for (std::size_t i = 0; i < candidates.count; ++i) {
      const auto other = hn::Set(di, candidates.keys[i]);
      const auto is_left = hn::Gt(number, hn::Set(di, static_cast<std::int32_t>(i)));
      const auto is_before = hn::Or(hn::Gt(other, keys), hn::And(hn::Eq(other, keys), is_left));
      before = hn::IfThenElse(is_before, hn::Add(before, hn::Set(di, 1)), before);
    }
    hn::Store(before, di, places);
    const std::size_t n = std::min(lanes(), candidates.count - first);
    for (std::size_t i = 0; i < n; ++i) sorted[places[i]] = candidates.columns[first + i];
  }
  for (std::size_t i = 0; i < k; ++i) indices[i] = static_cast<std::uint32_t>(sorted[i]);
}

template <class T>
void rank_row(const T* x, std::size_t cols, Best& best, std::uint32_t* indices) {
  const IntTag di;
  HWY_ALIGN std::int32_t keys[HWY_MAX_BYTES / sizeof(float)];
  best.clear(std::numeric_limits<std::int32_t>::min());
  for (std::size_t c = 0; c < cols; c += lanes()) {
    const auto v = order_keys(load(x + c, cols - c));
    const auto is_wanted = hn::Gt(v, hn::Set(di, best.threshold()));
    if (hn::AllFalse(di, is_wanted)) continue;
    LaneBits hits = lane_bits(is_wanted);
    if (cols - c < lanes()) hits &= static_cast<LaneBits>((LaneBits{1} << (cols - c)) - 1);
    hn::Store(v, di, keys);
    for (; hits != 0; hits &= static_cast<LaneBits>(hits - 1)) {
      const auto i = static_cast<std::size_t>(std::countr_zero(hits));
      best.add(keys[i], c + i);
    }
  }
  best.finish(indices);
}

template <class T>
void rank_row_of_few(const T* x, std::size_t cols, std::size_t k, Best& best, Candidates& candidates,
                     std::uint32_t* indices) {
  if (!collect(x, cols, safe_threshold(x, cols, k), candidates)) return rank_row(x, cols, best, indices);
  rank(candidates, k, indices);
}

template <class T>
void top_k_rows(const T* x, std::int64_t rows, std::int64_t cols, std::int64_t k, std::uint32_t* indices) {
  const auto width = static_cast<std::size_t>(cols), wanted = static_cast<std::size_t>(k);
  const bool is_few = wanted <= lanes() && wanted <= kInsertion;
  Best best(wanted);
  Candidates candidates;
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* row = x + r * cols;
    if (is_few) {
      rank_row_of_few(row, width, wanted, best, candidates, indices + r * k);
    } else {
      rank_row(row, width, best, indices + r * k);
    }
  }
}
void top_k_rows_f32(const float* x, std::int64_t rows, std::int64_t cols, std::int64_t k,
                    std::uint32_t* indices) {
  top_k_rows(x, rows, cols, k, indices);
}
void top_k_rows_bf16(const bf16* x, std::int64_t rows, std::int64_t cols, std::int64_t k,
                     std::uint32_t* indices) {
  top_k_rows(x, rows, cols, k, indices);
}
void top_k_rows_f16(const f16* x, std::int64_t rows, std::int64_t cols, std::int64_t k,
                    std::uint32_t* indices) {
  top_k_rows(x, rows, cols, k, indices);
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
HWY_EXPORT(top_k_rows_f32);
HWY_EXPORT(top_k_rows_bf16);
HWY_EXPORT(top_k_rows_f16);

namespace cpu {

void top_k_rows(const float* x, std::int64_t rows, std::int64_t cols, std::int64_t k,
                std::uint32_t* indices) {
  HWY_DYNAMIC_DISPATCH(top_k_rows_f32)(x, rows, cols, k, indices);
}

void top_k_rows(const bf16* x, std::int64_t rows, std::int64_t cols, std::int64_t k, std::uint32_t* indices) {
  HWY_DYNAMIC_DISPATCH(top_k_rows_bf16)(x, rows, cols, k, indices);
}

void top_k_rows(const f16* x, std::int64_t rows, std::int64_t cols, std::int64_t k, std::uint32_t* indices) {
  HWY_DYNAMIC_DISPATCH(top_k_rows_f16)(x, rows, cols, k, indices);
}

}  // namespace cpu

namespace {

template <class T>
void top_k_forward(const HostCall& call) {
  const auto& p = call.params<TopKParams>();
  const T* x = call.read<T>(0);
  T* values = call.write<T>(0);
  auto* indices = call.write<std::uint32_t>(1);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    cpu::top_k_rows(x + begin * p.cols, end - begin, p.cols, p.k, indices + begin * p.k);
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t j = r * p.k; j < (r + 1) * p.k; ++j) values[j] = x[r * p.cols + indices[j]];
    }
  });
}
MIXTAPE_HOST_KERNEL("top_k_forward_f32", top_k_forward<float>);
MIXTAPE_HOST_KERNEL("top_k_forward_bf16", top_k_forward<bf16>);
MIXTAPE_HOST_KERNEL("top_k_forward_f16", top_k_forward<f16>);

template <class T>
void top_k_backward(const HostCall& call) {
  const auto& p = call.params<TopKParams>();
  const auto* indices = call.read<std::uint32_t>(0);
  const T* dvalues = call.read<T>(1);
  T* dx = call.write<T>(0);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    if (p.accumulate == 0) std::fill(dx + begin * p.cols, dx + end * p.cols, T(0.0f));
    for (std::int64_t j = begin * p.k; j < end * p.k; ++j) {
      if (indices[j] >= p.cols) {
        call.report_index(j, indices[j], p.cols);
        continue;
      }
      T& d = dx[j / p.k * p.cols + indices[j]];
      d = T(static_cast<float>(d) + static_cast<float>(dvalues[j]));
    }
  });
}
MIXTAPE_HOST_KERNEL("top_k_backward_f32", top_k_backward<float>);
MIXTAPE_HOST_KERNEL("top_k_backward_bf16", top_k_backward<bf16>);
MIXTAPE_HOST_KERNEL("top_k_backward_f16", top_k_backward<f16>);

}  // namespace
}  // namespace mixtape
#endif
