#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/gptq/gptq_cpu.cpp"
#include <algorithm>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/gemm.h"
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/scratch.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/gptq/gptq_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// Rows that a thread works on side by side, each in a lane of its own: 4 vectors of up to 16 lanes.
constexpr std::int64_t kGptqRows = 64;
// Columns from one product to the next: their errors, [columns, rows], fill 32 KB.
constexpr std::int64_t kGptqCols = 128;

// One value per row; 0 for the rows that a last chunk lacks.
struct GptqLanes {
  HWY_ALIGN float values[kGptqRows] = {};

  // Every `stride`-th element from `first` on.
  template <class T>
  void gather(const T* first, std::int64_t rows, std::int64_t stride) {
    for (std::int64_t r = 0; r < rows; ++r) values[r] = static_cast<float>(first[r * stride]);
  }
};

struct GptqColumn {
  GptqLanes w, scales, biases, codes;
  const float* factor;    // L[i, .]
  std::int64_t begin, i;  // sums hold what the columns before `begin` give
  const float* sums;      // [rows]
  float* errors;          // [cols, rows]
  float largest;          // code
};

// The code and the error of column i in the lanes from `at` on, given the sum over the columns before it.
HWY_INLINE void gptq_quantize(GptqColumn& c, Floats sum, std::size_t at) {
  const Floats w = load(c.w.values + at), s = load(c.scales.values + at), b = load(c.biases.values + at);
  const Floats t = hn::Add(w, hn::Div(sum, set(c.factor[c.i])));
  const Floats code = hn::Round(hn::Div(hn::Sub(t, b), s));
  const auto is_positive = hn::And(hn::Gt(code, zero()), hn::Ne(s, zero()));  // a NaN isn't
  const Floats clamped = hn::IfThenElseZero(is_positive, hn::Min(code, set(c.largest)));
  store(clamped, c.codes.values + at);
  store(hn::Sub(w, hn::MulAdd(clamped, s, b)), c.errors + c.i * kGptqRows + at);
}

// Four vectors at once, so that their additions don't wait for each other.
HWY_INLINE void gptq_four(GptqColumn& c, std::size_t at) {
  const std::size_t n = lanes();
  const float* from = c.sums + at;
  Floats a0 = load(from), a1 = load(from + n), a2 = load(from + 2 * n), a3 = load(from + 3 * n);
  for (std::int64_t j = c.begin; j < c.i; ++j) {
    const Floats l = set(c.factor[j]);
    const float* e = c.errors + j * kGptqRows + at;
    a0 = hn::MulAdd(l, load(e), a0);
    a1 = hn::MulAdd(l, load(e + n), a1);
    a2 = hn::MulAdd(l, load(e + 2 * n), a2);
    a3 = hn::MulAdd(l, load(e + 3 * n), a3);
  }
  gptq_quantize(c, a0, at);
  gptq_quantize(c, a1, at + n);
  gptq_quantize(c, a2, at + 2 * n);
  gptq_quantize(c, a3, at + 3 * n);
}

void gptq_column(GptqColumn& c) {
  for (std::size_t at = 0; at < kGptqRows; at += 4 * lanes()) gptq_four(c, at);
}

// Up to kGptqRows rows that share a factor.
template <class S>
struct GptqRows {
  const float* w;            // [rows, cols]
  const float* factor;       // [cols, cols]
  const S *scales, *biases;  // [rows, groups]
  std::uint32_t* words;      // [rows, packed cols]
  std::int64_t rows, cols;
  AffineParams format;
};

struct GptqScratch {
  cpu::Scratch errors, sums, codes;
};

// sums [block's columns, rows] = what the columns before the block give.
void gptq_feed_back(const float* factor, std::int64_t cols, std::int64_t begin, const float* errors,
                    float* sums) {
  cpu::gemm_on_this_thread({.m = std::min(kGptqCols, cols - begin),
                            .n = kGptqRows,
                            .k = begin,
                            .lda = cols,
                            .ldb = kGptqRows,
                            .ldc = kGptqRows},
                           factor + begin * cols, errors, sums);
}

template <class S>
void gptq_rows(const GptqRows<S>& p, GptqScratch& scratch) {
  const auto cols = static_cast<std::size_t>(p.cols), rows = static_cast<std::size_t>(p.rows);
  float* sums = scratch.sums.get<float>(kGptqCols * kGptqRows);
  auto* codes = scratch.codes.get<std::uint8_t>(rows * cols);
  GptqColumn c{};
  c.errors = scratch.errors.get<float>(cols * kGptqRows);
  c.largest = static_cast<float>(p.format.max_code());
  for (c.i = 0; c.i < p.cols; ++c.i) {
    c.begin = c.i / kGptqCols * kGptqCols;
    if (c.i == c.begin) gptq_feed_back(p.factor, p.cols, c.begin, c.errors, sums);
    if (c.i % p.format.group_size == 0) {
      const std::int64_t group = c.i / p.format.group_size, groups = p.format.groups(p.cols);
      c.scales.gather(p.scales + group, p.rows, groups);
      c.biases.gather(p.biases + group, p.rows, groups);
    }
    c.w.gather(p.w + c.i, p.rows, p.cols);
    c.factor = p.factor + c.i * p.cols;
    c.sums = sums + (c.i - c.begin) * kGptqRows;
    gptq_column(c);
    for (std::int64_t r = 0; r < p.rows; ++r)
      codes[r * p.cols + c.i] = static_cast<std::uint8_t>(c.codes.values[r]);
  }
  const auto packed = static_cast<std::size_t>(p.format.packed_cols(p.cols));
  for (std::size_t r = 0; r < rows; ++r)
    pack_codes({codes + r * cols, cols}, p.format.bits, {p.words + r * packed, packed});
}

template <class S>
void gptq_forward(const HostCall& call) {
  const auto& p = call.params<GptqParams>();
  const std::int64_t chunks = (p.rows + kGptqRows - 1) / kGptqRows;
  const std::int64_t groups = p.format.groups(p.cols), packed = p.format.packed_cols(p.cols);
  cpu::parallel_for(p.batch * chunks, 1, [&](std::int64_t begin, std::int64_t end) {
    thread_local GptqScratch scratch;
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      const std::int64_t matrix = chunk / chunks, first = chunk % chunks * kGptqRows;
      const std::int64_t row = matrix * p.rows + first;
      gptq_rows(GptqRows<S>{call.read<float>(0) + row * p.cols,
                            call.read<float>(1) + matrix * p.cols * p.cols, call.read<S>(2) + row * groups,
                            call.read<S>(3) + row * groups, call.write<std::uint32_t>(0) + row * packed,
                            std::min(kGptqRows, p.rows - first), p.cols, p.format},
                scratch);
    }
  });
}
MIXTAPE_SIMD_KERNEL(gptq_forward)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(gptq_forward)
}  // namespace mixtape
#endif
