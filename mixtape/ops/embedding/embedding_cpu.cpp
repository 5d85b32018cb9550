#include "mixtape/ops/embedding/embedding_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/embedding/embedding_cpu.cpp"
#include <algorithm>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// Both for n and `to` that are multiples of 64.
void stream_zeros(void* to, std::size_t n) {
  const hn::ScalableTag<std::uint8_t> bytes;
  auto* out = static_cast<std::uint8_t*>(to);
  for (std::size_t i = 0; i < n; i += hn::Lanes(bytes)) hn::Stream(hn::Zero(bytes), bytes, out + i);
}
void stream_bytes(const void* from, void* to, std::size_t n) {
  const hn::ScalableTag<std::uint8_t> bytes;
  const auto* in = static_cast<const std::uint8_t*>(from);
  auto* out = static_cast<std::uint8_t*>(to);
  for (std::size_t i = 0; i < n; i += hn::Lanes(bytes)) hn::Stream(hn::LoadU(bytes, in + i), bytes, out + i);
}

template <class T>
void embedding_forward(const HostCall& call) {
  const auto& p = call.params<EmbeddingParams>();
  const T* table = call.read<T>(0);
  const auto* ids = call.read<std::uint32_t>(1);
  T* y = call.write<T>(0);
  const bool is_large = streams(y, p.count, p.hidden);
  cpu::parallel_for(p.count, cpu::row_grain(p.hidden), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t id = id_at(ids, p.ids_are_signed != 0, b);
      T* row = y + row_offset(b, p.hidden);
      if (id < 0 || id >= p.rows) {
        std::fill(row, row + p.hidden, T(0.0f));
        call.report_index(b, id, p.rows);
      } else if (const T* from = table + row_offset(id, p.hidden); is_large) {
        stream_bytes(from, row, static_cast<std::size_t>(p.hidden) * sizeof(T));
      } else {
        std::copy(from, from + p.hidden, row);
      }
    }
  });
}
MIXTAPE_SIMD_KERNEL(embedding_forward)

// sum, or +0 with is_first, plus the first N rows, left to right. Meanwhile the N rows after them are
// fetched.
template <std::size_t N, class T>
HWY_INLINE void add_rows(const T* dy, std::int64_t hidden, const std::int64_t* positions, bool is_first,
                         float* sum, std::size_t cols) {
  const T *rows[N], *next[N];
  for (std::size_t n = 0; n < N; ++n) {
    rows[n] = dy + row_offset(positions[n], hidden);
    next[n] = dy + row_offset(positions[N + n], hidden);
  }
  for_each_step(cols, false, [&](std::size_t c, auto step) HWY_ATTR {
    Floats s = is_first ? zero() : step.load(sum + c);
    for (std::size_t n = 0; n < N; ++n) {
      s = hn::Add(s, step.load(rows[n] + c));
      __builtin_prefetch(next[n] + c, 0, 2);
    }
    step.store(s, sum + c);
  });
}

template <class T>
void sum_block(const T* dy, std::int64_t hidden, const std::int64_t* positions, std::int64_t count,
               float* sum, std::size_t cols) {
  static_assert(cpu::Segments::kPadding >= 4);
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) add_rows<4>(dy, hidden, positions + i, i == 0, sum, cols);
  const std::int64_t left = count - i;
  if (left == 1) add_rows<1>(dy, hidden, positions + i, i == 0, sum, cols);
  if (left == 2) add_rows<2>(dy, hidden, positions + i, i == 0, sum, cols);
  if (left == 3) add_rows<3>(dy, hidden, positions + i, i == 0, sum, cols);
}

template <class T>
void sum_segment(const T* dy, std::int64_t hidden, const std::int64_t* positions, std::int64_t count,
                 std::int64_t first, std::int64_t cols, float* block, float* sum) {
  const auto width = static_cast<std::size_t>(cols);
  sum_block(dy + first, hidden, positions, std::min(count, kSegmentBlock), sum, width);
  for (std::int64_t i = kSegmentBlock; i < count; i += kSegmentBlock) {
    sum_block(dy + first, hidden, positions + i, std::min(count - i, kSegmentBlock), block, width);
    for_each_step(width, false, [&](std::size_t c, auto step) HWY_ATTR {
      step.store(hn::Add(step.load(sum + c), step.load(block + c)), sum + c);
    });
  }
}
void sum_segment_f32(const float* dy, std::int64_t hidden, const std::int64_t* positions, std::int64_t count,
                     std::int64_t first, std::int64_t cols, float* block, float* sum) {
  sum_segment(dy, hidden, positions, count, first, cols, block, sum);
}
void sum_segment_bf16(const bf16* dy, std::int64_t hidden, const std::int64_t* positions, std::int64_t count,
                      std::int64_t first, std::int64_t cols, float* block, float* sum) {
  sum_segment(dy, hidden, positions, count, first, cols, block, sum);
}
void sum_segment_f16(const f16* dy, std::int64_t hidden, const std::int64_t* positions, std::int64_t count,
                     std::int64_t first, std::int64_t cols, float* block, float* sum) {
  sum_segment(dy, hidden, positions, count, first, cols, block, sum);
}

template <class T>
void write_row(const float* sum, T* row, std::size_t cols, bool accumulate, bool is_large) {
  for_each_step(cols, is_large, [&](std::size_t c, auto step) HWY_ATTR {
    const Floats s = step.load(sum + c);
    step.store(accumulate ? hn::Add(step.load(row + c), s) : s, row + c);
  });
}

template <class T>
void embedding_backward(const HostCall& call) {
  const auto& p = call.params<EmbeddingParams>();
  const cpu::Segments segments = cpu::sort_ids(call, call.read<std::uint32_t>(0), p);
  const T* dy = call.read<T>(1);
  T* dtable = call.write<T>(0);
  const auto cols = static_cast<std::size_t>(p.hidden);
  const bool accumulate = p.accumulate != 0, is_large = !accumulate && streams(dtable, p.rows, p.hidden);
  cpu::sum_segments(segments, dy, p.rows, p.hidden, [&](std::int64_t id, const float* sum) {
    T* row = dtable + row_offset(id, p.hidden);
    if (sum != nullptr) {
      write_row(sum, row, cols, accumulate, is_large);
    } else if (is_large) {
      stream_zeros(row, cols * sizeof(T));
    } else if (!accumulate) {
      std::fill(row, row + cols, T(0.0f));
    }
  });
}
MIXTAPE_SIMD_KERNEL(embedding_backward)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(embedding_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(embedding_backward)
HWY_EXPORT(sum_segment_f32);
HWY_EXPORT(sum_segment_bf16);
HWY_EXPORT(sum_segment_f16);

namespace cpu {

// A counting sort: stable, and linear in ids and rows. While ids are placed, begin[id + 1] is where the next
// occurrence of `id` goes.
Segments sort_ids(const HostCall& call, const std::uint32_t* ids, const EmbeddingParams& params) {
  static thread_local Scratch begin_memory, positions_memory;
  const bool is_signed = params.ids_are_signed != 0;
  auto* begin = begin_memory.get<std::int64_t>(static_cast<std::size_t>(params.rows) + 2);
  std::fill(begin, begin + params.rows + 2, std::int64_t{0});
  std::int64_t first_bad = -1;
  for (std::int64_t i = params.count - 1; i >= 0; --i) {
    const std::int64_t id = id_at(ids, is_signed, i);
    if (0 <= id && id < params.rows) {
      ++begin[id + 2];
    } else {
      first_bad = i;
    }
  }
  if (first_bad >= 0) call.report_index(first_bad, id_at(ids, is_signed, first_bad), params.rows);
  for (std::int64_t id = 0; id < params.rows; ++id) begin[id + 2] += begin[id + 1];
  const std::int64_t count = begin[params.rows + 1];
  auto* positions = positions_memory.get<std::int64_t>(static_cast<std::size_t>(count + Segments::kPadding));
  for (std::int64_t i = 0; i < params.count; ++i) {
    const std::int64_t id = id_at(ids, is_signed, i);
    if (0 <= id && id < params.rows) positions[begin[id + 1]++] = i;
  }
  std::fill(positions + count, positions + count + Segments::kPadding, std::int64_t{0});
  return {begin, positions};
}

void sum_segment(const float* dy, std::int64_t hidden, const std::int64_t* positions, std::int64_t count,
                 std::int64_t first, std::int64_t cols, float* block, float* sum) {
  HWY_DYNAMIC_DISPATCH(sum_segment_f32)(dy, hidden, positions, count, first, cols, block, sum);
}

void sum_segment(const bf16* dy, std::int64_t hidden, const std::int64_t* positions, std::int64_t count,
                 std::int64_t first, std::int64_t cols, float* block, float* sum) {
  HWY_DYNAMIC_DISPATCH(sum_segment_bf16)(dy, hidden, positions, count, first, cols, block, sum);
}

void sum_segment(const f16* dy, std::int64_t hidden, const std::int64_t* positions, std::int64_t count,
                 std::int64_t first, std::int64_t cols, float* block, float* sum) {
  HWY_DYNAMIC_DISPATCH(sum_segment_f16)(dy, hidden, positions, count, first, cols, block, sum);
}

}  // namespace cpu
}  // namespace mixtape
#endif
