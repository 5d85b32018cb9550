#include "mixtape/ops/gated_delta_rule/gated_delta_rule.h"

#include <cmath>

#include "mixtape/autograd/gradients.h"
#include "mixtape/ops/gated_delta_rule/gated_delta_rule_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

Shape state_shape(const Shape& q, const Shape& v) { return {v[0], v[2], v[3], q[3]}; }

void check_inputs(const char* op, const DeltaRuleInputs& in) {
  check_values(op, "q", in.q);
  const Shape& q = in.q.shape();
  require(q.rank() == 4 && q[2] > 0 && q[3] > 0 && q[3] <= kMostDeltaKeys, op, ": q is ", in.q,
          ", expected [B,S,Hk,Dk] with Dk from 1 to ", kMostDeltaKeys);
  check_like(op, "k", in.k, "q", in.q);
  check_values(op, "v", in.v);
  const Shape& v = in.v.shape();
  require(in.v.dtype() == in.q.dtype() && v.rank() == 4 && v[0] == q[0] && v[1] == q[1] && v[3] > 0, op,
          ": v is ", in.v, ", expected ", in.q.dtype(), "[B,S,Hv,Dv] to go with q ", in.q);
  require(v[2] > 0 && v[2] % q[2] == 0, op, ": v has ", v[2], " heads, expected a multiple of the ", q[2],
          " of q");
  check_is(op, "g", in.g, DType::f32, {v[0], v[1], v[2]});
  check_is(op, "beta", in.beta, DType::f32, {v[0], v[1], v[2]});
  if (in.initial) check_is(op, "initial", in.initial, DType::f32, state_shape(q, v));
  require(std::isfinite(in.scale), op, ": scale is ", in.scale, ", expected a finite number");
}

GatedDeltaRuleParams params_of(const DeltaRuleInputs& in) {
  const Shape &q = in.q.shape(), &v = in.v.shape();
  GatedDeltaRuleParams params{};
  params.batch = q[0];
  params.length = q[1];
  params.key_heads = q[2];
  params.value_heads = v[2];
  params.key_dim = q[3];
  params.value_dim = v[3];
  params.scale = in.scale;
  params.has_initial = in.initial ? 1 : 0;
  return params;
}

struct NamedTarget {
  const char* name;
  const char* like;
  const Buffer& input;
  Backward::Target DeltaRuleTargets::*target;
};

// In the order of the bits.
std::vector<NamedTarget> named_targets(const DeltaRuleInputs& in) {
  return {{"dq", "q", in.q, &DeltaRuleTargets::q},
          {"dk", "k", in.k, &DeltaRuleTargets::k},
          {"dv", "v", in.v, &DeltaRuleTargets::v},
          {"dg", "g", in.g, &DeltaRuleTargets::g},
          {"dbeta", "beta", in.beta, &DeltaRuleTargets::beta},
          {"dinitial", "initial", in.initial, &DeltaRuleTargets::initial}};
}

}  // namespace

Shape gated_delta_rule_states(const Shape& q, const Shape& v) {
  require(q.rank() == 4 && v.rank() == 4, "gated_delta_rule: q and v are ", q, " and ", v,
          ", expected [B,S,Hk,Dk] and [B,S,Hv,Dv]");
  return {v[0], v[2], (v[1] + kDeltaChunk - 1) / kDeltaChunk, v[3], q[3]};
}

void gated_delta_rule_forward(CommandEncoder& encoder, const DeltaRuleInputs& in, const Buffer& y,
                              const Buffer& final_state, const Buffer& states) {
  const char* op = "gated_delta_rule";
  check_inputs(op, in);
  check_like(op, "y", y, "v", in.v);
  check_is(op, "final_state", final_state, DType::f32, state_shape(in.q.shape(), in.v.shape()));
  check_no_overlap(op, "final_state", final_state, "y", y);
  std::vector<Buffer> reads = {in.q, in.k, in.v, in.g, in.beta}, writes = {y, final_state};
  if (in.initial) reads.push_back(in.initial);
  if (states) {
    check_is(op, "states", states, DType::f32, gated_delta_rule_states(in.q.shape(), in.v.shape()));
    check_no_overlap(op, "states", states, "final_state", final_state);
    check_no_overlap(op, "states", states, "y", y);
    writes.push_back(states);
  }
  for (const Buffer& input : reads) {
    for (const Buffer& output : writes) check_no_overlap(op, "an output", output, "an input", input);
  }
  GatedDeltaRuleParams params = params_of(in);
  params.keeps_states = states ? 1 : 0;
  encoder.encode({.kernel = str("gated_delta_rule_forward_", in.q.dtype()),
                  .params = params_bytes(params),
                  .reads = reads,
                  .writes = writes});
}

void gated_delta_rule_backward(CommandEncoder& encoder, const DeltaRuleInputs& in, const Buffer& states,
                               const Buffer& dy, const Buffer& dfinal, const DeltaRuleTargets& out) {
  const char* op = "gated_delta_rule_backward";
  check_inputs(op, in);
  check_is(op, "states", states, DType::f32, gated_delta_rule_states(in.q.shape(), in.v.shape()));
  check_like(op, "dy", dy, "v", in.v);
  if (dfinal) check_is(op, "dfinal", dfinal, DType::f32, state_shape(in.q.shape(), in.v.shape()));
  require(in.initial || !out.initial.buffer, op, ": dinitial is ", out.initial.buffer, " without an initial");
  const std::vector<NamedTarget> targets = named_targets(in);
  // Inputs that are one variable: whichever comes later has a call of its own, which adds.
  for (std::size_t i = 1; i < targets.size(); ++i) {
    const Backward::Target later = out.*targets[i].target;
    for (std::size_t j = 0; j < i && later.buffer && later.accumulate == Accumulate::yes; ++j) {
      if (!overlap((out.*targets[j].target).buffer, later.buffer)) continue;
      DeltaRuleTargets others = out, alone;
      others.*targets[i].target = {};
      alone.*targets[i].target = later;
      gated_delta_rule_backward(encoder, in, states, dy, dfinal, others);
      return gated_delta_rule_backward(encoder, in, states, dy, dfinal, alone);
    }
  }
  std::vector<Buffer> reads = {in.q, in.k, in.v, in.g, in.beta, states, dy};
  if (dfinal) reads.push_back(dfinal);
  Gradients gradients(op, encoder);
  std::vector<Buffer> apart = reads;
  if (in.initial) apart.push_back(in.initial);
  for (const NamedTarget& t : targets) gradients.add(t.name, out.*t.target, t.like, t.input, apart);
  if (gradients.writes().empty()) return;
  GatedDeltaRuleParams params = params_of(in);
  params.has_dfinal = dfinal ? 1 : 0;
  params.wanted = gradients.wanted();
  params.accumulate = gradients.accumulate();
  encoder.encode({.kernel = str("gated_delta_rule_backward_", in.q.dtype()),
                  .params = params_bytes(params),
                  .reads = reads,
                  .writes = gradients.writes(),
                  .adds = gradients.adds()});
}

DeltaRule gated_delta_rule(const Var& q, const Var& k, const Var& v, const Var& g, const Var& beta,
                           const Var& initial, float scale) {
  const char* op = "gated_delta_rule";
  std::vector<Var> given = {q, k, v, g, beta};
  if (initial.value()) given.push_back(initial);
  Tape& tape = common_tape(op, given);
  const DeltaRuleInputs in{q.value(), k.value(), v.value(), g.value(), beta.value(), initial.value(), scale};
  check_inputs(op, in);
  bool needs_gradient = false;
  for (const Var& input : given) needs_gradient = needs_gradient || input.requires_grad();
  const Shape &qs = in.q.shape(), &vs = in.v.shape();
  const Buffer y = tape.alloc(in.v.dtype(), vs), final_state = tape.alloc(DType::f32, state_shape(qs, vs));
  const Buffer states = tape.is_recording() && needs_gradient
                            ? tape.alloc(DType::f32, gated_delta_rule_states(qs, vs))
                            : Buffer();
  gated_delta_rule_forward(tape.encoder(), in, y, final_state, states);
  const Var out = tape.record(op, {q, k, v, g, beta, initial}, y, [in, states](Backward& b) {
    DeltaRuleTargets targets;
    std::size_t input = 0;
    for (const NamedTarget& t : named_targets(in)) targets.*t.target = b.grad(input++);
    gated_delta_rule_backward(b.encoder(), in, states, b.dy(), Buffer(), targets);
  });
  return {out, final_state};
}

}  // namespace mixtape
