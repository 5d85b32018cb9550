// How launchers that rotate heads divide them.
#pragma once

#include <memory>

#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/ops/rope/rope_gpu_params.h"

namespace mixtape::gpu {

// Cosines and sines f32 [positions, pairs], times the factor, and of the negative angle for a sign of -1.
struct RopeAngles {
  std::shared_ptr<Memory> memory;
  Argument cos, sin;
};
RopeAngles rope_angles(const Call& call, const RopeParams& p, const Argument& positions,
                       const Argument& inv_freq, float sign);

inline std::int64_t pack_of(DType dtype) { return static_cast<std::int64_t>(16 / size_of(dtype)); }

// Whether pairs and heads are whole packs of 16 bytes.
inline bool rope_is_packed(const RopeParams& p, DType dtype) {
  return p.pairs % pack_of(dtype) == 0 && p.head_dim % pack_of(dtype) == 0;
}

// Threads that a head takes, each with 2n of its dimensions: n pairs, or those that no pair has.
inline std::int64_t rope_units(const RopeParams& p, std::int64_t n) {
  return p.pairs / n + ceil_div(p.head_dim - 2 * p.pairs, 2 * n);
}

}  // namespace mixtape::gpu
