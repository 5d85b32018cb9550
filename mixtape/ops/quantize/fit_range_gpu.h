// MLX's rule in GPU kernels, and how they report weights that it can't take.
#pragma once

#include "mixtape/backend/gpu/kernel_language.h"

namespace mixtape {

struct GroupFit {
  float scale, bias;
};

MIXTAPE_DEVICE bool is_finite(float v) { return v - v == 0.0f; }

MIXTAPE_DEVICE float round_half_away(float v) {
  const float whole = floor_f32(abs_f32(v));
  const float rounded = abs_f32(v) - whole >= 0.5f ? whole + 1.0f : whole;
  return v < 0.0f ? -rounded : rounded;
}
MIXTAPE_DEVICE float round_as(bool to_even, float v) { return to_even ? rint_f32(v) : round_half_away(v); }

// fit_range of affine.h.
MIXTAPE_DEVICE GroupFit fit_range_gpu(int bits, bool to_even, float low, float high) {
  const bool low_is_larger = abs_f32(low) > abs_f32(high);
  const float steps = static_cast<float>((1 << bits) - 1);
  const float exact = (high - low) / steps;
  const float magnitude = exact < 1e-7f ? 1e-7f : exact;
  const float scale = low_is_larger ? magnitude : -magnitude;
  const float edge = low_is_larger ? low : high;
  const float code_of_zero = round_as(to_even, edge / scale);
  if (code_of_zero == 0.0f) return GroupFit{scale, 0.0f};
  return GroupFit{edge / code_of_zero, edge};
}

// Position in the upper 40 bits, the first 24 of the value below: none for a scale that overflows.
MIXTAPE_DEVICE void report_weight(Global<std::uint64_t> errors, std::int64_t position, float value) {
  atomic_min(errors, (static_cast<std::uint64_t>(position) << 24) | (bits_of(value) >> 8));
}

}  // namespace mixtape
