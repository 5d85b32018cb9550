// The scales of groups from two levels (quantize/block_format.h): n neighbouring groups of a row, a block, share an f16
// number d that a whole number multiplies for each of them. Both are learned: d as an f32 master, the whole number as a
// real number u that is rounded on the way (straight-through estimators).
//   q[r,j] = clamp(round(u[r,j]), lowest, highest)        y[r,j] = factor * f16(d[r,j/n]) * q[r,j]
//   dd[r,b] = factor * sum over groups j of block b of dy[r,j]*q[r,j]
//   du[r,j] = factor * f16(d[r,j/n]) * dy[r,j] where lowest-0.5 <= u[r,j] <= highest+0.5, else 0
// A factor of -c gives the bias of a symmetric format whose code c stands for 0. A rule that stores no whole numbers
// has no u, and every q is 1.
// Shapes: d, dd f32 [..., blocks]; u, du, y, dy f32 [..., n*blocks].
// Saved for backward: d and u.
// Deterministic: sums run over a block's groups in order.
// Edges: halves round to even. Infinite u are clamped; a NaN in u counts as the lowest, without a gradient. A d that
//   f16 can't hold becomes infinite.
// Accuracy: where |q| < 2^13 and factor is a power of two, y is exact but for overflow and underflow; dd within
//   (n+1) * 2^-24 * sum |factor*dy*q|; du one f32 product of an exact one.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, a u that the rule has no use for or
//   lacks, n below 1, a grid whose lowest is above its highest.
#pragma once

#include <algorithm>
#include <cmath>

#include "mixtape/autograd/tape.h"
#include "mixtape/ops/quantize/block_format.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

struct BlockScaleRule {
  std::int32_t groups;  // n
  SubGrid grid;         // of q
  float factor = 1.0f;
};

// The grid's number nearest to u, as q above.
inline float nearest(SubGrid grid, float u) {
  const auto lowest = static_cast<float>(grid.lowest), highest = static_cast<float>(grid.highest);
  return std::nearbyint(u > lowest ? std::min(u, highest) : lowest);
}

// u: null where the rule stores no whole numbers.
void block_scales_forward(CommandEncoder& encoder, const Buffer& d, const Buffer& u, const Buffer& y,
                          const BlockScaleRule& rule);

// Either gradient may be left out.
void block_scales_backward(CommandEncoder& encoder, const Buffer& dy, const Buffer& d, const Buffer& u,
                           const Backward::Target& dd, const Backward::Target& du,
                           const BlockScaleRule& rule);

Var block_scales(const Var& d, const Var& u, const BlockScaleRule& rule);

}  // namespace mixtape
