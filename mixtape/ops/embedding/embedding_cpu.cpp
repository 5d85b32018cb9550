#include "mixtape/ops/embedding/embedding_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/embedding/embedding_cpu.cpp"
#include <algorithm>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class T>
void embedding_forward(const HostCall& call) {
  const auto& p = call.params<EmbeddingParams>();
  const T* table = call.read<T>(0);
  const auto* ids = call.read<std::uint32_t>(1);
  T* y = call.write<T>(0);
  cpu::parallel_for(p.count, cpu::row_grain(p.hidden), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t id = id_at(ids, p.ids_are_signed != 0, b);
      T* row = y + row_offset(b, p.hidden);
      if (0 <= id && id < p.rows) {
        const T* from = table + row_offset(id, p.hidden);
        std::copy(from, from + p.hidden, row);
      } else {
        std::fill(row, row + p.hidden, T(0.0f));
        call.report_index(b, id, p.rows);
      }
    }
  });
}
MIXTAPE_SIMD_KERNEL(embedding_forward)

// Adds rows left to right, four at a time so that the sum is read and written less often.
template <class T>
void sum_block(const T* dy, std::int64_t hidden, const std::int64_t* positions, std::int64_t count,
               float* sum, std::size_t cols) {
  std::fill(sum, sum + cols, 0.0f);
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const T* r0 = dy + row_offset(positions[i], hidden);
    const T* r1 = dy + row_offset(positions[i + 1], hidden);
    const T* r2 = dy + row_offset(positions[i + 2], hidden);
    const T* r3 = dy + row_offset(positions[i + 3], hidden);
    for (std::size_t c = 0; c < cols; c += lanes()) {
      const std::size_t n = cols - c;
      const Floats s = hn::Add(hn::Add(load(sum + c, n), load(r0 + c, n)), load(r1 + c, n));
      store(hn::Add(hn::Add(s, load(r2 + c, n)), load(r3 + c, n)), sum + c, n);
    }
  }
  for (; i < count; ++i) {
    const T* row = dy + row_offset(positions[i], hidden);
    for (std::size_t c = 0; c < cols; c += lanes()) {
      const std::size_t n = cols - c;
      store(hn::Add(load(sum + c, n), load(row + c, n)), sum + c, n);
    }
  }
}

template <class T>
void sum_segment(const T* dy, std::int64_t hidden, const std::int64_t* positions, std::int64_t count,
                 std::int64_t first, std::int64_t cols, float* block, float* sum) {
  const auto width = static_cast<std::size_t>(cols);
  sum_block(dy + first, hidden, positions, std::min(count, kSegmentBlock), sum, width);
  for (std::int64_t i = kSegmentBlock; i < count; i += kSegmentBlock) {
    sum_block(dy + first, hidden, positions + i, std::min(count - i, kSegmentBlock), block, width);
    for (std::size_t c = 0; c < width; c += lanes()) {
      store(hn::Add(load(sum + c, width - c), load(block + c, width - c)), sum + c, width - c);
    }
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
void write_row(const float* sum, T* row, std::size_t cols, bool accumulate) {
  for (std::size_t c = 0; c < cols; c += lanes()) {
    const std::size_t n = cols - c;
    store(accumulate ? hn::Add(load(row + c, n), load(sum + c, n)) : load(sum + c, n), row + c, n);
  }
}

template <class T>
void embedding_backward(const HostCall& call) {
  const auto& p = call.params<EmbeddingParams>();
  const cpu::Segments segments = cpu::sort_ids(call, call.read<std::uint32_t>(0), p);
  const T* dy = call.read<T>(1);
  T* dtable = call.write<T>(0);
  const auto cols = static_cast<std::size_t>(p.hidden);
  cpu::sum_segments(segments, dy, p.rows, p.hidden, [&](std::int64_t id, const float* sum) {
    T* row = dtable + row_offset(id, p.hidden);
    if (sum != nullptr) {
      write_row(sum, row, cols, p.accumulate != 0);
    } else if (p.accumulate == 0) {
      std::fill(row, row + p.hidden, T(0.0f));
    }
  });
}
MIXTAPE_SIMD_KERNEL(embedding_backward)

template <class T>
void embedding_backward_sparse(const HostCall& call) {
  const auto& p = call.params<EmbeddingParams>();
  const cpu::Segments segments = cpu::sort_ids(call, call.read<std::uint32_t>(0), p);
  auto* ids = call.write<std::uint32_t>(0);
  T* rows = call.write<T>(1);
  std::vector<std::uint32_t> places(static_cast<std::size_t>(p.rows));
  std::uint32_t count = 0;
  for (std::int64_t id = 0; id < p.rows; ++id) {
    if (segments.begin[id] == segments.begin[id + 1]) continue;
    ids[count] = static_cast<std::uint32_t>(id);
    places[id] = count++;
  }
  call.write<std::uint32_t>(2)[0] = count;
  const auto cols = static_cast<std::size_t>(p.hidden);
  cpu::sum_segments(segments, call.read<T>(1), p.rows, p.hidden, [&](std::int64_t id, const float* sum) {
    if (sum != nullptr) write_row(sum, rows + row_offset(places[id], p.hidden), cols, false);
  });
}
MIXTAPE_SIMD_KERNEL(embedding_backward_sparse)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(embedding_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(embedding_backward)
MIXTAPE_REGISTER_SIMD_KERNEL(embedding_backward_sparse)
HWY_EXPORT(sum_segment_f32);
HWY_EXPORT(sum_segment_bf16);
HWY_EXPORT(sum_segment_f16);

namespace cpu {

// A counting sort: stable, and linear in ids and rows.
Segments sort_ids(const HostCall& call, const std::uint32_t* ids, const EmbeddingParams& params) {
  const bool is_signed = params.ids_are_signed != 0;
  Segments s;
  s.begin.resize(static_cast<std::size_t>(params.rows) + 1);
  std::int64_t first_bad = -1;
  for (std::int64_t i = params.count - 1; i >= 0; --i) {
    const std::int64_t id = id_at(ids, is_signed, i);
    if (0 <= id && id < params.rows) {
      ++s.begin[id + 1];
    } else {
      first_bad = i;
    }
  }
  if (first_bad >= 0) call.report_index(first_bad, id_at(ids, is_signed, first_bad), params.rows);
  for (std::int64_t id = 0; id < params.rows; ++id) s.begin[id + 1] += s.begin[id];
  s.positions.resize(static_cast<std::size_t>(s.begin[params.rows]));
  std::vector<std::int64_t> next(s.begin.begin(), s.begin.end() - 1);
  for (std::int64_t i = 0; i < params.count; ++i) {
    const std::int64_t id = id_at(ids, is_signed, i);
    if (0 <= id && id < params.rows) s.positions[next[id]++] = i;
  }
  return s;
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
