// The plan of fit_blocks' search, the same on every device.
#pragma once

namespace mixtape {

inline constexpr int kMostGroups = 16;
// A group's range is drawn towards its mean at either end by so many fractions, down to (1 - kBlockDrop(bits)).
inline constexpr int kBlockFractions = 4;
// Of symmetric types so many scales of either sign.
inline constexpr int kSymmetricScales = 8;
inline constexpr int kGroupTurns = 2;
// Outer scales to start from: the largest scale at the grid's end, and up to so many times 4 % before it.
inline constexpr int kBlockStarts = 4;
inline constexpr float kStartStep = 0.04f;
inline constexpr int kBlockTurns = 2;
inline constexpr int kLastBlockTurns = 3;
// Weight of a group of no importance, beside one of 1 to 2.
inline constexpr float kNoImportance = 0x1p-24f;
// A scale below this, where the largest weight is near 1, counts as 0.
inline constexpr float kLeastBlockScale = 0x1p-100f;

}  // namespace mixtape
