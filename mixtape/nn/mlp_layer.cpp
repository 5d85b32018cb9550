#include "mixtape/nn/mlp_layer.h"

#include "mixtape/ops/clamped_swiglu/clamped_swiglu.h"
#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/elementwise/scale_rows.h"
#include "mixtape/ops/layout/layout.h"
#include "mixtape/ops/silu_mul/silu_mul.h"

namespace mixtape {

DenseMlp::DenseMlp(TapeWeights& weights, const std::string& at, const DenseMlpSpec& spec)
    : spec_(spec),
      gate_(weights.matrix(at + (spec.fused ? "gate_up_proj" : "gate_proj"))),
      up_(spec.fused ? Matrix() : weights.matrix(at + "up_proj")),
      down_(weights.matrix(at + "down_proj")) {
  if (!spec.bias) return;
  gate_bias_ = weights.vector(at + (spec.fused ? "gate_up_proj.bias" : "gate_proj.bias"));
  if (!spec.fused) up_bias_ = weights.vector(at + "up_proj.bias");
  down_bias_ = weights.vector(at + "down_proj.bias");
}

Var DenseMlp::gated(const Var& gate, const Var& up) const {
  return spec_.activation == Activation::silu ? silu_mul(gate, up) : gelu(gate) * up;
}

Var DenseMlp::forward(const Var& x, const Var& onto) const {
  const Var first = add_bias(linear(x, gate_), gate_bias_);  // [..., F], fused [..., 2F]
  const std::int64_t width = spec_.width;
  const Var gate = spec_.fused ? slice(first, -1, 0, width) : first;  // [..., F]
  const Var up =
      spec_.fused ? slice(first, -1, width, 2 * width) : add_bias(linear(x, up_), up_bias_);  // [..., F]
  return linear_onto(onto, gated(gate, up), down_, down_bias_);                               // [..., hidden]
}

SparseMlp::SparseMlp(TapeWeights& weights, const std::string& at, const SparseMlpSpec& spec)
    : spec_(spec),
      router_(load(weights, at + spec.router_name, spec.bias)),
      gate_(load(weights, at + spec.experts_name + ".gate_proj", spec.bias)),
      up_(load(weights, at + spec.experts_name + ".up_proj", spec.bias)),
      down_(load(weights, at + spec.experts_name + ".down_proj", spec.bias)) {
  if (spec.shared_width == 0) return;
  const Matrix gate = weights.matrix(at + "shared_expert_gate");
  shared_ = Shared{gate, DenseMlp(weights, at + "shared_expert.", {.width = spec.shared_width})};
}

SparseMlp::Projection SparseMlp::load(TapeWeights& weights, const std::string& path, bool has_bias) {
  const Matrix weight = weights.matrix(path);
  return {weight, has_bias ? weights.vector(path + ".bias") : Var()};
}

Var SparseMlp::projected(const Var& sorted, const Projection& p, const MoePlan& plan) const {
  return add_bias(grouped_linear(sorted, p.weight, plan.offsets), p.bias, plan.experts);
}

Var SparseMlp::gated(const Var& sorted, const MoePlan& plan) const {
  const bool has_limit = spec_.swiglu_limit != 0.0;
  if (!has_limit && !spec_.bias) return grouped_gated(sorted, gate_.weight, up_.weight, plan.offsets);
  const Var gate = projected(sorted, gate_, plan), up = projected(sorted, up_, plan);
  if (!has_limit) return silu_mul(gate, up);
  return clamped_swiglu(
      gate, up,
      {.alpha = static_cast<float>(spec_.swiglu_alpha), .limit = static_cast<float>(spec_.swiglu_limit)});
}

// Rows are copied once per chosen expert, sorted by expert, and added up again.
Var SparseMlp::forward(const Var& x, const std::function<void(const Buffer& offsets)>& on_offsets,
                       const Var& onto) const {
  const Var rows = reshape(x, {x.shape().rows(), x.shape().cols()});                    // [T, hidden]
  const Var scores = add_bias(linear(rows, router_.weight, DType::f32), router_.bias);  // [T, E]
  const MoeRoute route = moe_route(scores, spec_.experts_per_token, spec_.normalized_weights);
  const MoePlan plan = moe_plan(x.tape().encoder(), route.indices, spec_.experts);
  if (on_offsets) on_offsets(plan.offsets);
  const Var sorted = moe_dispatch(rows, plan);                      // [T * k, hidden]
  const Var inner = gated(sorted, plan);                            // [T * k, F]
  Var before = onto.value() ? reshape(onto, rows.shape()) : Var();  // [T, hidden], where there is one
  if (shared_) {
    const Var gate = reshape(sigmoid(linear(rows, shared_->gate)), {rows.shape()[0]});  // [T]
    const Var shared = scale_rows(shared_->mlp.forward(rows, Var()), gate);
    before = before.value() ? before + shared : shared;
  }
  const Var y = moe_combine(projected(inner, down_, plan), route.weights, plan, before);  // [T, hidden]
  return reshape(y, x.shape());                                                           // [..., hidden]
}

}  // namespace mixtape
