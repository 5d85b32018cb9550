#include "mixtape/backend/gpu/lanes.h"
#include "mixtape/backend/gpu/split_params.h"

namespace mixtape {

// The upper half of the bits: what is left of v has the sign of v, and 8 bits less.
MIXTAPE_DEVICE float upper_part(float v) { return float_of(bits_of(v) & 0xffff0000u); }

// y[row, part, col]: bf16 parts whose sum is x[row, col]. What is not finite is its own first part.
MIXTAPE_KERNEL(split_f32, 256, SplitParams p, Global<const f32> x, Global<bf16> y) {
  await_earlier();
  const std::int64_t i = global_thread();
  if (i >= p.count) return;
  const float v = x[i];
  const bool is_finite = (bits_of(v) & 0x7f800000u) != 0x7f800000u;
  const std::int64_t row = divide(i, p.cols), at = row * (kSplitParts * p.cols) + (i - row * p.cols);
  float rest = v;
  MIXTAPE_UNROLL
  for (int part = 0; part < kSplitParts; ++part) {
    const float upper = upper_part(rest);
    y[at + part * p.cols] = from_f32<bf16>(is_finite ? upper : (part == 0 ? v : 0.0f));
    rest -= upper;
  }
}

// y[i] (+)= the sum of three matrices' element i, the small parts first.
#define SPLIT_SUM(T)                                                                           \
  MIXTAPE_KERNEL(split_sum_##T, 256, SplitSumParams p, Global<const f32> parts, Global<T> y) { \
    await_earlier();                                                                           \
    const std::int64_t i = global_thread();                                                    \
    if (i >= p.count) return;                                                                  \
    const float sum = parts[i + 2 * p.count] + parts[i + p.count] + parts[i];                  \
    y[i] = from_f32<T>(p.accumulate != 0 ? to_f32(y[i]) + sum : sum);                          \
  }
SPLIT_SUM(f32)
SPLIT_SUM(bf16)

}  // namespace mixtape
