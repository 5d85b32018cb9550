#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/fit_affine/fit_affine_cpu.cpp"
#include "mixtape/ops/fit_affine/fit_affine_cpu.h"

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/fit_affine/search_cpu.h"
#include "mixtape/ops/quantize/encode_group_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// Some rows of w [rows, cols], as many as there are lanes, with their importance.
struct RowBlock {
  std::int64_t first, count;
  const float* h;       // [cols]
  const float* totals;  // [groups]
};

struct BlockScratch {
  explicit BlockScratch(const FitAffineParams& p)
      : w(static_cast<std::size_t>(p.affine.group_size) * lanes()),
        codes(static_cast<std::size_t>(p.cols) * lanes()) {}
  std::vector<float> w;             // [group size, lanes]
  std::vector<std::uint8_t> codes;  // [lanes, cols]
};

// Lane by lane: what the search takes in one number for each group.
struct LaneValues {
  LaneValues() {
    for (float* values : {unit, inverse_unit, scale, bias})
      std::fill_n(values, HWY_MAX_BYTES / sizeof(float), 1.0f);  // also where there is no row
  }
  HWY_ALIGN float unit[HWY_MAX_BYTES / sizeof(float)];
  HWY_ALIGN float inverse_unit[HWY_MAX_BYTES / sizeof(float)];
  HWY_ALIGN float scale[HWY_MAX_BYTES / sizeof(float)];
  HWY_ALIGN float bias[HWY_MAX_BYTES / sizeof(float)];
};

// A row's group: its unit, and MLX's scale and bias as they are stored. False where they overflow.
template <class S>
bool prepare_lane(const float* w, const float* h, const FitAffineParams& p, std::size_t lane,
                  LaneValues& lanes_of) {
  const auto size = static_cast<std::size_t>(p.affine.group_size);
  const ScaleAndBias rule = fit_group({w, size}, p.affine.bits, Rounding::gpu);
  const auto scale = static_cast<float>(S(rule.scale)), bias = static_cast<float>(S(rule.bias));
  if (!std::isfinite(scale) || !std::isfinite(bias)) return false;
  float counted = 0.0f, all = 0.0f;
  for (std::size_t c = 0; c < size; ++c) {
    all = std::max(all, std::fabs(w[c]));
    if (h[c] > 0.0f) counted = std::max(counted, std::fabs(w[c]));
  }
  const PowerOfTwo unit = power_of_two(std::max(counted, all * kLeastCounted));
  lanes_of.unit[lane] = unit.value;
  lanes_of.inverse_unit[lane] = unit.inverse;
  lanes_of.scale[lane] = scale;
  lanes_of.bias[lane] = bias;
  return true;
}

// Transposes a group of every row; 0 where the importance is 0, and in lanes without a row.
void gather(const float* w, std::int64_t cols, std::int64_t count, const float* h, std::size_t size,
            const LaneValues& values, std::vector<float>& out) {
  std::fill(out.begin(), out.end(), 0.0f);
  for (std::int64_t r = 0; r < count; ++r) {
    const auto lane = static_cast<std::size_t>(r);
    for (std::size_t c = 0; c < size; ++c) {
      if (h[c] > 0.0f)
        out[c * lanes() + lane] =
            w[r * cols + static_cast<std::int64_t>(c)] * values.inverse_unit[lane] + 0.0f;  // no -0
    }
  }
}

template <class S>
void mean_and_range(GroupSearch<S>& search) {
  Floats sum = zero();
  search.low = set(HUGE_VALF);
  search.high = set(-HUGE_VALF);
  for (std::size_t c = 0; c < search.size; ++c) {
    if (!(search.h[c] > 0.0f)) continue;
    const Floats v = load(search.w + c * lanes());
    sum = hn::Add(sum, hn::Mul(set(search.h[c]), v));
    search.low = hn::Min(search.low, v);
    search.high = hn::Max(search.high, v);
  }
  search.mean = hn::Div(sum, set(search.total));
}

// Group g of every row of the block: scales, biases, and codes in the scratch. Returns the first row for which
// MLX's rule overflows S, or -1.
template <class S>
std::int64_t fit_groups(const HostCall& call, const FitAffineParams& p, const RowBlock& block, std::int64_t g,
                        BlockScratch& scratch) {
  const auto size = static_cast<std::size_t>(p.affine.group_size);
  const float* w = call.read<float>(0) + block.first * p.cols + g * p.affine.group_size;
  const float* h = block.h + g * p.affine.group_size;
  LaneValues values;
  for (std::int64_t r = 0; r < block.count; ++r) {
    if (!prepare_lane<S>(w + r * p.cols, h, p, static_cast<std::size_t>(r), values)) return block.first + r;
  }
  gather(w, p.cols, block.count, h, size, values, scratch.w);
  GroupSearch<S> search;
  search.w = scratch.w.data();
  search.h = h;
  search.size = size;
  search.total = block.totals[g];
  search.unit = load(static_cast<const float*>(values.unit));
  search.inverse_unit = load(static_cast<const float*>(values.inverse_unit));
  search.largest = set(static_cast<float>(p.affine.max_code()));
  search.best = {hn::Mul(load(static_cast<const float*>(values.scale)), search.inverse_unit),
                 hn::Mul(load(static_cast<const float*>(values.bias)), search.inverse_unit)};
  mean_and_range(search);
  search.run(p.drop, p.nudge);
  store(hn::Mul(search.best.scale, search.unit), static_cast<float*>(values.scale));
  store(hn::Mul(search.best.bias, search.unit), static_cast<float*>(values.bias));
  for (std::int64_t r = 0; r < block.count; ++r) {
    const ScaleAndBias fit{values.scale[r], values.bias[r]};
    const std::int64_t at = (block.first + r) * p.affine.groups(p.cols) + g;
    call.write<S>(1)[at] = S(fit.scale);
    call.write<S>(2)[at] = S(fit.bias);
    encode_group(w + r * p.cols, p.affine, Rounding::cpu, fit,
                 scratch.codes.data() + r * p.cols + g * p.affine.group_size);
  }
  return -1;
}

template <class S>
void fit_block(const HostCall& call, const FitAffineParams& p, const RowBlock& block, BlockScratch& scratch,
               cpu::FirstBad& first_bad) {
  const auto cols = static_cast<std::size_t>(p.cols);
  for (std::int64_t r = block.first; r < block.first + block.count; ++r) {
    const std::int64_t col = find_non_finite({call.read<float>(0) + r * p.cols, cols}, p.affine.group_size);
    if (col >= 0) return first_bad.note(r * p.cols + col);
  }
  for (std::int64_t g = 0; g < p.affine.groups(p.cols); ++g) {
    const std::int64_t row = fit_groups<S>(call, p, block, g, scratch);
    if (row >= 0) first_bad.note(row * p.cols + g * p.affine.group_size);
  }
  const std::int64_t words = p.affine.packed_cols(p.cols);
  for (std::int64_t r = 0; r < block.count; ++r) {
    pack_codes({scratch.codes.data() + r * p.cols, cols}, p.affine.bits,
               {call.write<std::uint32_t>(0) + (block.first + r) * words, static_cast<std::size_t>(words)});
  }
}

template <class S>
void fit_affine_forward(const HostCall& call) {
  const auto& p = call.params<FitAffineParams>();
  const cpu::Importance importance(call, p);
  const auto step = static_cast<std::int64_t>(lanes());
  const std::int64_t blocks = (p.rows + step - 1) / step;  // of an expert
  cpu::FirstBad first_bad;
  cpu::parallel_for(p.experts * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    BlockScratch scratch(p);
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t expert = b / blocks, first = b % blocks * step;
      fit_block<S>(call, p,
                   {expert * p.rows + first, std::min(step, p.rows - first), importance.row(expert),
                    importance.totals_of(expert)},
                   scratch, first_bad);
    }
  });
  first_bad.refuse(call, p);
}

MIXTAPE_SIMD_KERNEL(fit_affine_forward)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
namespace cpu {

Importance::Importance(const HostCall& call, const FitAffineParams& p)
    : cols_(p.cols),
      groups_(p.affine.groups(p.cols)),
      values_(static_cast<std::size_t>(p.experts * p.cols), 1.0f),
      totals_(static_cast<std::size_t>(p.experts * groups_), static_cast<float>(p.affine.group_size)) {
  if (p.has_importance == 0) return;
  const float* given = call.read<float>(1);
  const auto size = static_cast<std::size_t>(p.affine.group_size);
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (!(given[i] >= 0.0f) || !std::isfinite(given[i]))
      refuse_importance(static_cast<std::int64_t>(i), given[i]);
  }
  for (std::size_t g = 0; g < totals_.size(); ++g) {
    const float* h = given + g * size;
    const float largest = *std::max_element(h, h + size);
    if (largest == 0.0f) continue;
    const float inverse = power_of_two(largest).inverse;
    totals_[g] = 0.0f;
    for (std::size_t c = 0; c < size; ++c) totals_[g] += values_[g * size + c] = h[c] * inverse;
  }
}

void FirstBad::note(std::int64_t position) {
  std::int64_t seen = position_;
  while (position < seen && !position_.compare_exchange_weak(seen, position)) {
  }
}

void FirstBad::refuse(const HostCall& call, const FitAffineParams& p) const {
  if (position_ == kNone) return;
  const std::int64_t row = position_ / p.cols, col = position_ % p.cols;
  const float* w = call.read<float>(0) + row * p.cols;
  if (find_non_finite({w, static_cast<std::size_t>(p.cols)}, p.affine.group_size) == col)
    refuse_weight("fit_affine", row, col, w[col]);
  refuse_overflow(row, col, call.writes[1].dtype());
}

}  // namespace cpu

MIXTAPE_REGISTER_SIMD_KERNEL(fit_affine_forward)

}  // namespace mixtape
#endif
