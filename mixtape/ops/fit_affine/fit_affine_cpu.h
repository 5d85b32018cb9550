// What the host kernel of fit_affine needs that doesn't depend on the instruction set.
#pragma once

#include <atomic>
#include <limits>
#include <vector>

#include "mixtape/ops/fit_affine/fit_affine_params.h"
#include "mixtape/runtime/kernel_registry.h"

namespace mixtape::cpu {

// The importance of every column, each group's largest brought near 1; ones where none was given or all of a
// group are 0. Throws invalid_argument for the first that is negative or not finite.
class Importance {
 public:
  Importance(const HostCall& call, const FitAffineParams& p);
  const float* row(std::int64_t expert) const { return values_.data() + expert * cols_; }          // [cols]
  const float* totals_of(std::int64_t expert) const { return totals_.data() + expert * groups_; }  // [groups]

 private:
  std::int64_t cols_, groups_;
  std::vector<float> values_, totals_;
};

// The lowest element of w at which something can't be fitted; threads share it.
class FirstBad {
 public:
  void note(std::int64_t position);
  // Throws what was noted.
  void refuse(const HostCall& call, const FitAffineParams& p) const;

 private:
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> position_ = kNone;
};

}  // namespace mixtape::cpu
