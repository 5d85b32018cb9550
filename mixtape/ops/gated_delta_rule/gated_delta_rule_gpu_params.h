// Sizes that the launchers and the kernels of gated_delta_rule share.
#pragma once

#include <cstdint>

#include "mixtape/ops/gated_delta_rule/gated_delta_rule_params.h"

namespace mixtape {

inline constexpr int kDeltaSlice = 32;  // rows of a state, values, that a block takes from chunk to chunk

// Floats of a chunk's decays: from the start, to the end, and the sums of logarithms as two floats each.
inline constexpr int kDeltaDecays = 4 * kDeltaChunk;
inline constexpr int kDeltaSquare = kDeltaChunk * kDeltaChunk;

// Floats of shared memory: a product's two operands in depth 16 at a time.
inline constexpr int kDeltaDepth = 16, kDeltaStride = kDeltaChunk + 4;
inline constexpr int kDeltaStage = 2 * kDeltaDepth * kDeltaStride;

// Of a block that goes from chunk to chunk: the stage, two [64, slice], four factors a position, the state.
constexpr std::int64_t delta_slice_floats(std::int64_t key_dim) {
  return kDeltaStage + 2 * kDeltaChunk * kDeltaSlice + 4 * kDeltaChunk + kDeltaSlice * key_dim;
}

// On matrix units: most keys and values of a head.
inline constexpr int kDeltaTensorDim = 128;

constexpr std::int64_t delta_slices(std::int64_t value_dim) {
  return (value_dim + kDeltaSlice - 1) / kDeltaSlice;
}

}  // namespace mixtape
