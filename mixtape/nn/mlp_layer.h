// The MLPs of a decoder's layers.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "mixtape/io/layer_spec.h"
#include "mixtape/nn/tape_weights.h"
#include "mixtape/ops/moe_route/moe_route.h"

namespace mixtape {

// down(activation(gate(x)) * up(x))
class DenseMlp {
 public:
  // `at` is the path of the MLP's tensors, "model.layers.0.mlp.".
  DenseMlp(TapeWeights& weights, const std::string& at, const DenseMlpSpec& spec);
  // x [..., hidden] -> [..., hidden], added to `onto`, if that is not null.
  Var forward(const Var& x, const Var& onto) const;

 private:
  Var gated(const Var& gate, const Var& up) const;

  DenseMlpSpec spec_;
  Matrix gate_, up_, down_;              // fused: gate_ is both
  Var gate_bias_, up_bias_, down_bias_;  // null where there are none
};

// y = sum_k score_k * expert_k(x), each a dense MLP, and sigmoid(gate(x)) * shared(x) where there is a shared expert
class SparseMlp {
 public:
  SparseMlp(TapeWeights& weights, const std::string& at, const SparseMlpSpec& spec);
  // x [..., hidden] -> [..., hidden]. on_offsets, if given, is called with each expert's first row among the
  // sorted ones, u32 [E+1] on the device. The result is added to `onto`, if that is not null.
  Var forward(const Var& x, const std::function<void(const Buffer& offsets)>& on_offsets,
              const Var& onto) const;

 private:
  struct Projection {
    Matrix weight;
    Var bias;  // null where there is none
  };
  static Projection load(TapeWeights& weights, const std::string& path, bool has_bias);
  Var projected(const Var& sorted, const Projection& p, const MoePlan& plan) const;
  Var gated(const Var& sorted, const MoePlan& plan) const;

  SparseMlpSpec spec_;
  Projection router_, gate_, up_, down_;  // [E, hidden], [E, F, hidden] twice, [E, hidden, F]
  struct Shared {
    Matrix gate;  // [1, hidden]
    DenseMlp mlp;
  };
  std::optional<Shared> shared_;
};

}  // namespace mixtape
