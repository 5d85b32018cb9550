// The plan of fit_affine's search, the same on every device.
#pragma once

namespace mixtape {

// A start's range: from the weighted mean, fraction 1 - i*drop of the way to the least weight, and 1 - j*drop of
// that to the largest, for i, j in 0 .. kFractions-1.
inline constexpr int kFractions = 6;
inline constexpr int kTurns = 3;      // of a start
inline constexpr int kLastTurns = 5;  // from the best pair of all starts
inline constexpr int kNudges = 3;     // the best scale is moved by up to so many units either way

// A group's unit is that of its largest weight that counts; one that doesn't count is at most 2^60 units.
inline constexpr float kLeastCounted = 0x1p-60f;

}  // namespace mixtape
