#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/latent_codes/latent_codes_cpu.cpp"
#include <algorithm>
#include <atomic>
#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/latent_codes/latent_codes_params.h"
#include "mixtape/ops/quantize/codes_cpu.h"
#include "mixtape/ops/quantize/decode_rows_cpu.h"
#include "mixtape/ops/quantize/group_sums_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// What u stands for; NaN for 0.
HWY_INLINE Floats latent_code(Floats u, Floats largest) {
  return hn::Round(hn::Min(hn::IfThenElseZero(hn::Gt(u, zero()), u), largest));
}
HWY_INLINE Floats largest_code(AffineParams p) { return set(static_cast<float>(p.max_code())); }

// Groups of a weight, all one after the other.
struct Latent {
  explicit Latent(const LatentCodesParams& p)
      : affine(p.affine), size(static_cast<std::size_t>(affine.group_size)), groups(affine.groups(p.count)) {}
  AffineParams affine;
  std::size_t size;  // of a group
  std::int64_t groups;
  const float* u = nullptr;
  const float* scales = nullptr;

  template <class Body>
  void parallel(const Body& body) const {
    cpu::parallel_for(groups, cpu::row_grain(affine.group_size), body);
  }
  template <class T>
  bool is_large(const T* out) const {
    return streams(out, groups, affine.group_size);
  }
};

template <class T>
void decode_groups(const Latent& from, const float* biases, std::int64_t begin, std::int64_t end, T* w,
                   WholeStep step) {
  const Floats largest = largest_code(from.affine);
  for (std::int64_t g = begin; g < end; ++g) {
    const Floats scale = set(from.scales[g]), bias = set(biases[g]);
    const std::size_t first = static_cast<std::size_t>(g) * from.size;
    for (std::size_t i = first; i < first + from.size; i += lanes())
      step.store(fused(latent_code(step.load(from.u + i), largest), scale, bias), w + i);
  }
}

template <class T>
void latent_codes_forward(const HostCall& call) {
  Latent from(call.params<LatentCodesParams>());
  from.u = call.read<float>(0);
  from.scales = call.read<float>(1);
  const float* biases = call.read<float>(2);
  T* w = call.write<T>(0);
  const WholeStep step{from.is_large(w)};
  from.parallel(
      [&](std::int64_t begin, std::int64_t end) { decode_groups(from, biases, begin, end, w, step); });
}
MIXTAPE_SIMD_KERNEL(latent_codes_forward)

// The gradient of u passes where its rounding stays in the range.
struct LatentGradient {
  float* du;  // null: not wanted
  bool accumulates;
  Floats lowest, highest;

  HWY_INLINE void put(Floats dw, Floats u, Floats scale, std::size_t i, WholeStep step) const {
    if (du == nullptr) return;
    const auto inside = hn::And(hn::Ge(u, lowest), hn::Le(u, highest));
    const Floats d = hn::IfThenElseZero(inside, hn::Mul(dw, scale));
    step.store(accumulates ? hn::Add(load(du + i), d) : d, du + i);
  }
};

template <class T>
void backward_groups(const Latent& from, std::int64_t begin, std::int64_t end, const T* dw,
                     const cpu::ScaleGradients& out, float* du, bool accumulates, WholeStep step) {
  const Floats largest = largest_code(from.affine);
  const LatentGradient gradient{du, accumulates, set(-0.5f), hn::Add(largest, set(0.5f))};
  for (std::int64_t g = begin; g < end; ++g) {
    const Floats scale = set(from.scales[g]);
    const std::size_t first = static_cast<std::size_t>(g) * from.size;
    GroupSums sums;
    for (std::size_t i = first; i < first + from.size; i += lanes()) {
      const Floats d = step.load(dw + i), u = step.load(from.u + i);
      sums.add(d, latent_code(u, largest));
      gradient.put(d, u, scale, i, step);
    }
    sums.put<float>(out, g);
  }
}

Accumulate accumulates(const LatentCodesParams& p, std::uint32_t bit) {
  return (p.accumulate & bit) != 0 ? Accumulate::yes : Accumulate::no;
}

template <class T>
void latent_codes_backward(const HostCall& call) {
  const auto& p = call.params<LatentCodesParams>();
  Latent from(p);
  const T* dw = call.read<T>(0);
  from.u = call.read<float>(1);
  from.scales = call.read<float>(2);
  float* du = call.write_if<float>(p.wanted, kLatentDu);
  const cpu::ScaleGradients out{call.write_if<float>(p.wanted, kLatentDscales),
                                call.write_if<float>(p.wanted, kLatentDbiases), DType::f32,
                                accumulates(p, kLatentDscales), accumulates(p, kLatentDbiases)};
  const bool adds = accumulates(p, kLatentDu) == Accumulate::yes;
  const bool is_in_place = static_cast<const void*>(du) == static_cast<const void*>(dw);
  const WholeStep step{du != nullptr && !adds && !is_in_place && from.is_large(du)};
  from.parallel([&](std::int64_t begin, std::int64_t end) {
    backward_groups(from, begin, end, dw, out, du, adds, step);
  });
}
MIXTAPE_SIMD_KERNEL(latent_codes_backward)

// Runs of kPackedCodes. False where there is a NaN.
bool pack_runs(const Latent& from, std::int64_t begin, std::int64_t end, std::uint32_t* words) {
  constexpr std::size_t kRun = kPackedCodes;
  const Floats largest = largest_code(from.affine);
  const auto packed = static_cast<std::size_t>(from.affine.bits);
  std::uint8_t codes[kRun];
  Floats not_a_number = zero();
  for (std::int64_t run = begin; run < end; ++run) {
    const float* u = from.u + static_cast<std::size_t>(run) * kRun;
    for (std::size_t i = 0; i < kRun; i += lanes()) {
      const Floats v = load(u + i);
      not_a_number = hn::Or(not_a_number, hn::IfThenElseZero(hn::IsNaN(v), set(1.0f)));
      store_codes(latent_code(v, largest), codes + i);
    }
    pack_codes(codes, from.affine.bits, {words + static_cast<std::size_t>(run) * packed, packed});
  }
  return sum_lanes(not_a_number) == 0.0f;
}

void pack_codes_forward(const HostCall& call) {
  const auto& p = call.params<LatentCodesParams>();
  Latent from(p);
  from.u = call.read<float>(0);
  std::uint32_t* words = call.write<std::uint32_t>(0);
  std::atomic<bool> has_nan = false;
  cpu::parallel_for(p.count / kPackedCodes, cpu::row_grain(kPackedCodes),
                    [&](std::int64_t begin, std::int64_t end) {
                      if (!pack_runs(from, begin, end, words)) has_nan = true;
                    });
  if (!has_nan) return;
  const float* nan = std::find_if(from.u, from.u + p.count, [](float u) { return std::isnan(u); });
  refuse_nan(nan - from.u, p.cols);
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(latent_codes_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(latent_codes_backward)
MIXTAPE_REGISTER_SIMD_ONE(pack_codes_forward)
}  // namespace mixtape
#endif
