#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/rope/rope_cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/ops/rope/rope_cpu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// Goes through the sequences side by side: where they share a position, its angles are computed once.
template <class T>
void rotate(const HostCall& call, double sign) {
  const auto& p = call.params<RopeParams>();
  const T* x = call.read<T>(0);
  const auto* positions = call.read<std::uint32_t>(1);
  const float* inv_freq = call.read<float>(2);
  T* y = call.write<T>(0);
  const std::int64_t token = p.heads * p.head_dim;
  const bool is_large = !p.accumulate && x != y && streams(y, 2 * p.batch * p.length * p.heads, p.pairs) &&
                        p.head_dim == 2 * p.pairs;
  cpu::parallel_for(p.length, cpu::row_grain(p.batch * token), [&](std::int64_t begin, std::int64_t end) {
    Rotation rotation(p);
    for (std::int64_t s = begin; s < end; ++s) {
      for (std::int64_t b = 0; b < p.batch; ++b) {
        const std::uint32_t* row = positions + (p.position_batch == 1 ? 0 : b * p.length);
        const bool is_known = b > 0 && (p.position_batch == 1 || row[s] == row[s - p.length]);
        if (!is_known) set_angles(p, row[s], sign, inv_freq, rotation);
        const std::int64_t at = (b * p.length + s) * token;
        for (std::int64_t c = at; c < at + token; c += p.head_dim)
          rotate_head(p, x + c, rotation, y + c, is_large);
      }
    }
  });
}

template <class T>
void rope_forward(const HostCall& call) {
  rotate<T>(call, 1.0);
}
MIXTAPE_SIMD_KERNEL(rope_forward)

template <class T>
void rope_backward(const HostCall& call) {
  rotate<T>(call, -1.0);
}
MIXTAPE_SIMD_KERNEL(rope_backward)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(rope_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(rope_backward)
}  // namespace mixtape
#endif
