// The gated delta net as a layer of a decoder: projections, a convolution along time, the gated delta rule, a gated
// norm.
//   q|k|v = silu(conv(x W))        beta = sigmoid(b)        g = -exp(A_log) * softplus(a + dt_bias)
//   y = rms_norm(gated_delta_rule(q/|q|, k/|k|, v, g, beta)) * silu(z)
#pragma once

#include <string>

#include "mixtape/io/layer_spec.h"
#include "mixtape/nn/tape_weights.h"

namespace mixtape {

// What the tokens seen so far left behind; null before the first.
struct DeltaNetState {
  Var history;  // [B, taps - 1, C]: what the convolution saw last
  Var state;    // f32 [B, Hv, Dv, Dk]
};

class DeltaNetLayer {
 public:
  // `at` is the path of the layer's tensors, "model.layers.0.linear_attn.".
  DeltaNetLayer(TapeWeights& weights, const std::string& at, const DeltaNetSpec& spec, float eps);

  // x [B, S, hidden] -> [B, S, hidden]. With a state, x follows what the state holds, and the state moves on.
  // The result is added to `onto`, if that is not null.
  Var forward(const Var& x, DeltaNetState* state, const Var& onto) const;

 private:
  // What x gives before the convolution, and the gates.
  struct Parts {
    Var qkv;   // [B, S, C]
    Var z;     // [B, S, Hv, Dv]
    Var b, a;  // [B, S, Hv]
  };
  Parts parts(const Var& x) const;
  Parts fused_parts(const Var& x) const;
  Var convolved(const Var& qkv, DeltaNetState* state) const;
  Var log_decay(const Var& a) const;

  DeltaNetSpec spec_;
  float eps_;
  Matrix qkv_,
      z_;  // [C, hidden], [Hv Dv, hidden], C = 2 Hk Dk + Hv Dv; fused: qkv_ is both, for each key head its parts
  Matrix b_, a_;  // [Hv, hidden]; fused: b_ is both, alike
  Var taps_;      // [C, taps, 1]
  Var dt_bias_, a_log_, norm_;
  Matrix output_;  // [hidden, Hv Dv]
};

}  // namespace mixtape
