// A norm of a decoder: root mean square, or none.
#pragma once

#include <string>

#include "mixtape/nn/tape_weights.h"
#include "mixtape/ops/norm_rope/norm_rope.h"

namespace mixtape {

struct NormSettings {
  float eps = 0.0f;
  double offset = 0.0;  // is added to the weight
};

class Norm {
 public:
  Norm() = default;  // gives back what it gets
  Norm(TapeWeights& weights, const std::string& name, const NormSettings& settings)
      : weight_(weights.vector(name)), settings_(settings) {}

  bool is_none() const { return !weight_.value(); }
  // rms_norm over the last axis, or x; x [..., size of the weight].
  Var operator()(const Var& x) const;
  // The same for heads [B, S, H, size of the weight], and their rotation.
  Var operator()(const Var& heads, const RopeTurns& turns) const;

 private:
  Var weight() const;
  Var weight_;
  NormSettings settings_;
};

}  // namespace mixtape
