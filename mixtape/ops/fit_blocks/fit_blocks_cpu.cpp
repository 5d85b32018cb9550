#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/fit_blocks/fit_blocks_cpu.cpp"
#include "mixtape/ops/fit_blocks/fit_blocks_cpu.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/fit_affine/fit_affine_params.h"
#include "mixtape/ops/fit_blocks/fit_blocks_params.h"
#include "mixtape/ops/fit_blocks/fit_blocks_plan.h"
#include "mixtape/ops/quantize/affine.h"
#include "mixtape/ops/quantize/codes_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {
namespace block_fit {

// Every lane fits a block of its own: as many rows, the same columns.
struct Real {
  Floats v;
};
struct Choice {
  hn::Mask<FloatTag> v;
};

HWY_INLINE Real operator+(Real a, Real b) { return {hn::Add(a.v, b.v)}; }
HWY_INLINE Real operator-(Real a, Real b) { return {hn::Sub(a.v, b.v)}; }
HWY_INLINE Real operator*(Real a, Real b) { return {hn::Mul(a.v, b.v)}; }
HWY_INLINE Real operator/(Real a, Real b) { return {hn::Div(a.v, b.v)}; }
HWY_INLINE Real real(float v) { return {set(v)}; }
HWY_INLINE Real rounded(Real v) { return {hn::Round(v.v)}; }
HWY_INLINE Real magnitude(Real v) { return {hn::Abs(v.v)}; }
HWY_INLINE Choice less(Real a, Real b) { return {hn::Lt(a.v, b.v)}; }
HWY_INLINE Real choose(Choice c, Real yes, Real no) { return {hn::IfThenElse(c.v, yes.v, no.v)}; }
HWY_INLINE Real least(Real a, Real b) { return choose(less(a, b), a, b); }
HWY_INLINE Real most(Real a, Real b) { return choose(less(b, a), a, b); }
HWY_INLINE Real within(Real v, float lowest, float highest) {
  return {hn::Max(hn::Min(v.v, set(highest)), set(lowest))};
}

struct BlockWeights {
  const float* w;       // [block, lanes], in units; 0 where the importance is 0
  const float* h;       // [block]
  const float* shares;  // [block, lanes]
  Floats unit, inverse_unit;

  HWY_INLINE Real weight(int i) const { return {load(w + static_cast<std::size_t>(i) * lanes())}; }
  HWY_INLINE float importance(int i) const { return h[i]; }
  HWY_INLINE Real share(int i) const { return {load(shares + static_cast<std::size_t>(i) * lanes())}; }
  HWY_INLINE Real as_f16(Real v) const {
    HWY_ALIGN f16 held[HWY_MAX_BYTES / sizeof(float)];
    store(hn::Mul(v.v, unit), static_cast<f16*>(held));
    return {hn::Mul(load(static_cast<const f16*>(held)), inverse_unit)};
  }
};

#define FIT_FUNCTION inline
#include "mixtape/ops/fit_blocks/search.inc"
#undef FIT_FUNCTION

// A number for each row of a block of rows.
struct LaneNumbers {
  explicit LaneNumbers(float value) { std::fill_n(v, HWY_MAX_BYTES / sizeof(float), value); }
  explicit LaneNumbers(Floats values) { store(values, static_cast<float*>(v)); }
  HWY_ALIGN float v[HWY_MAX_BYTES / sizeof(float)];
};

// As many rows of w as there are lanes, or fewer.
struct Rows {
  std::int64_t first, count;
  const float* h;  // [cols], near 1 in every block
};

struct Scratch {
  explicit Scratch(const FitBlocksParams& p)
      : w(static_cast<std::size_t>(p.shape.groups * p.shape.group_size) * lanes()),
        shares(w.size()),
        codes(static_cast<std::size_t>(p.cols) * lanes()) {}
  std::vector<float> w, shares;     // [block, lanes]
  std::vector<std::uint8_t> codes;  // [lanes, cols]
};

// Transposes a block of every row, in units of its largest weight that counts.
void gather(const float* w, std::int64_t cols, std::int64_t count, const float* h, std::size_t size,
            LaneNumbers& unit, LaneNumbers& inverse, std::vector<float>& out) {
  std::fill(out.begin(), out.end(), 0.0f);
  for (std::int64_t r = 0; r < count; ++r) {
    const float* row = w + r * cols;
    float largest = 0.0f;
    for (std::size_t c = 0; c < size; ++c) {
      if (h[c] > 0.0f) largest = std::max(largest, std::fabs(row[c]));
    }
    const PowerOfTwo power = power_of_two(largest);
    unit.v[r] = power.value;
    inverse.v[r] = power.inverse;
    for (std::size_t c = 0; c < size; ++c) {
      if (h[c] > 0.0f)
        out[c * lanes() + static_cast<std::size_t>(r)] = row[c] * power.inverse + 0.0f;  // no -0
    }
  }
}

// Twice the mean square of every row's block of weights; 1 where all are 0.
Floats spread_of(const std::vector<float>& w, std::size_t size) {
  Floats sum = zero();
  for (std::size_t c = 0; c < size; ++c) {
    const Floats v = load(w.data() + c * lanes());
    sum = hn::Add(sum, hn::Mul(v, v));
  }
  const Floats spread = hn::Mul(sum, set(2.0f / static_cast<float>(size)));
  return hn::IfThenElse(hn::Lt(zero(), spread), spread, set(1.0f));
}

void list_shares(const float* h, std::size_t size, Scratch& scratch) {
  const Floats spread = spread_of(scratch.w, size);
  for (std::size_t c = 0; c < size; ++c) {
    const Floats v = load(scratch.w.data() + c * lanes());
    store(hn::Mul(set(h[c]), hn::Sqrt(hn::Add(spread, hn::Mul(v, v)))), scratch.shares.data() + c * lanes());
  }
}

// The nearest codes of a group w [group size]; of symmetric types the bias is not looked at.
void encode_group(const BlockShape& p, const float* w, float scale, float bias, std::uint8_t* codes) {
  if (p.has_biases == 0) bias = scale * -p.zero_code;
  const Floats inverse = set(scale != 0.0f ? 1.0f / scale : 0.0f);
  for (std::size_t c = 0; c < static_cast<std::size_t>(p.group_size); c += lanes()) {
    const Floats code = hn::Round(hn::Mul(hn::Sub(load(w + c), set(bias)), inverse));
    store_codes(hn::Min(hn::Max(code, zero()), set(p.largest)), codes + c);
  }
}

// Block b of every row. Returns the first row for which f16 doesn't hold its scale or bias, or -1.
std::int64_t fit_blocks_of(const HostCall& call, const FitBlocksParams& p, const Rows& rows, std::int64_t b,
                           Scratch& scratch) {
  const auto size = static_cast<std::size_t>(p.shape.groups * p.shape.group_size);
  const std::int64_t blocks = p.cols / static_cast<std::int64_t>(size);
  const float* w = call.read<float>(0) + rows.first * p.cols + b * static_cast<std::int64_t>(size);
  const float* h = rows.h + b * static_cast<std::int64_t>(size);
  LaneNumbers unit(1.0f), inverse(1.0f);
  gather(w, p.cols, rows.count, h, size, unit, inverse, scratch.w);
  list_shares(h, size, scratch);
  const float *units = unit.v, *inverses = inverse.v;
  const BlockWeights weights{scratch.w.data(), h, scratch.shares.data(), load(units), load(inverses)};
  const BlockState fit = fit_block(p.shape, weights, p.searches != 0);
  cpu::BlockOutputs out(call, p.shape);
  const LaneNumbers d(hn::Mul(fit.d.v, load(units))), e(hn::Mul(fit.e.v, load(units)));
  for (std::int64_t r = 0; r < rows.count; ++r) {
    if (!std::isfinite(d.v[r]) || !std::isfinite(e.v[r])) return rows.first + r;
    out.put_outer((rows.first + r) * blocks + b, d.v[r], e.v[r]);
  }
  for (std::int64_t j = 0; j < p.shape.groups; ++j) {
    const LaneNumbers scale(fit.sub_scales[j].v), bias(fit.sub_biases[j].v);
    for (std::int64_t r = 0; r < rows.count; ++r) {
      const std::int64_t at = b * static_cast<std::int64_t>(size) + j * p.shape.group_size;
      out.put_whole(((rows.first + r) * blocks + b) * p.shape.groups + j, scale.v[r], bias.v[r]);
      encode_group(p.shape, w + r * p.cols + j * p.shape.group_size, d.v[r] * scale.v[r], e.v[r] * bias.v[r],
                   scratch.codes.data() + r * p.cols + at);
    }
  }
  return -1;
}

// Whether neither a weight nor a difference of two can be anything but finite.
bool is_far_from_overflow(const float* row, std::size_t cols) {
  const UintTag du;
  auto largest = hn::Zero(du);
  for (std::size_t c = 0; c < cols; c += lanes())
    largest = hn::Max(largest, hn::BitCast(du, hn::Abs(load(row + c, cols - c))));
  return hn::AllTrue(du, hn::Lt(largest, hn::Set(du, 0x7f000000u)));  // 2^127
}

void fit_rows(const HostCall& call, const FitBlocksParams& p, const Rows& rows, Scratch& scratch,
              cpu::LowestPosition& bad) {
  const auto cols = static_cast<std::size_t>(p.cols);
  for (std::int64_t r = rows.first; r < rows.first + rows.count; ++r) {
    const float* row = call.read<float>(0) + r * p.cols;
    if (is_far_from_overflow(row, cols)) continue;
    const std::int64_t col = find_non_finite({row, cols}, p.shape.group_size);
    if (col >= 0) return bad.note(r * p.cols + col);
  }
  const std::int64_t size = std::int64_t{p.shape.groups} * p.shape.group_size;
  for (std::int64_t b = 0; b < p.cols / size; ++b) {
    const std::int64_t row = fit_blocks_of(call, p, rows, b, scratch);
    if (row >= 0) bad.note(row * p.cols + b * size);
  }
  const std::size_t words = cols / kPackedCodes * static_cast<std::size_t>(p.shape.bits);
  for (std::int64_t r = 0; r < rows.count; ++r) {
    pack_codes({scratch.codes.data() + r * p.cols, cols}, p.shape.bits,
               {call.write<std::uint32_t>(0) + static_cast<std::size_t>(rows.first + r) * words, words});
  }
}

}  // namespace block_fit

void fit_blocks_forward(const HostCall& call) {
  using namespace block_fit;
  const auto& p = call.params<FitBlocksParams>();
  const std::vector<float> importance = cpu::block_importance(call, p);
  const auto step = static_cast<std::int64_t>(lanes());
  const std::int64_t chunks = (p.rows + step - 1) / step;  // of an expert
  cpu::LowestPosition bad;
  cpu::parallel_for(p.experts * chunks, 1, [&](std::int64_t begin, std::int64_t end) {
    Scratch scratch(p);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t expert = i / chunks, first = i % chunks * step;
      fit_rows(call, p,
               {expert * p.rows + first, std::min(step, p.rows - first), importance.data() + expert * p.cols},
               scratch, bad);
    }
  });
  bad.refuse(call, p);
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
namespace cpu {

std::vector<float> block_importance(const HostCall& call, const FitBlocksParams& p) {
  std::vector<float> h(static_cast<std::size_t>(p.experts * p.cols), 1.0f);
  if (p.has_importance == 0) return h;
  const float* given = call.read<float>(1);
  for (std::size_t i = 0; i < h.size(); ++i) {
    if (!(given[i] >= 0.0f) || !std::isfinite(given[i]))
      refuse_block_importance(static_cast<std::int64_t>(i), given[i]);
  }
  const auto group = static_cast<std::size_t>(p.shape.group_size);
  const std::size_t block = static_cast<std::size_t>(p.shape.groups) * group;
  for (std::size_t b = 0; b < h.size(); b += block) {
    const float largest = *std::max_element(given + b, given + b + block);
    if (largest == 0.0f) continue;
    const float inverse = power_of_two(largest).inverse;
    for (std::size_t i = b; i < b + block; i += group) {
      const bool counts =
          std::any_of(given + i, given + i + group, [&](float v) { return v * inverse > 0.0f; });
      for (std::size_t c = i; c < i + group; ++c) h[c] = counts ? given[c] * inverse : kNoImportance;
    }
  }
  return h;
}

BlockOutputs::BlockOutputs(const HostCall& call, const BlockShape& p) {
  std::size_t next = 1;
  const auto take = [&](std::uint32_t is_there) {
    return is_there != 0 ? call.write<float>(next++) : nullptr;
  };
  scales_ = take(1);
  biases_ = take(p.has_biases);
  sub_scales_ = take(p.has_sub_scales);
  sub_biases_ = take(p.has_sub_biases);
}

void BlockOutputs::put_outer(std::int64_t block, float d, float e) {
  scales_[block] = d;
  if (biases_ != nullptr) biases_[block] = e;
}

void BlockOutputs::put_whole(std::int64_t group, float scale, float bias) {
  if (sub_scales_ != nullptr) sub_scales_[group] = scale;
  if (sub_biases_ != nullptr) sub_biases_[group] = bias;
}

void LowestPosition::note(std::int64_t position) {
  std::int64_t seen = position_;
  while (position < seen && !position_.compare_exchange_weak(seen, position)) {
  }
}

void LowestPosition::refuse(const HostCall& call, const FitBlocksParams& p) const {
  if (position_ == kNone) return;
  const std::int64_t row = position_ / p.cols, col = position_ % p.cols;
  const float* w = call.read<float>(0) + row * p.cols;
  if (find_non_finite({w, static_cast<std::size_t>(p.cols)}, p.shape.group_size) == col)
    refuse_weight("fit_blocks", row, col, w[col]);
  refuse_block_overflow(row, col);
}

}  // namespace cpu

MIXTAPE_REGISTER_SIMD_ONE(fit_blocks_forward)

}  // namespace mixtape
#endif
