#include "mixtape/ops/moe_route/moe_route.h"

#include "mixtape/ops/moe_route/moe_route_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

Shape checked_choice(const char* op, const Buffer& logits, std::int64_t k) {
  check_values(op, "logits", logits);
  require(logits.shape().rank() == 2, op, ": logits is ", logits, ", expected [tokens, experts]");
  require(1 <= k && k <= logits.shape()[1], op, ": k is ", k, ", expected 1 to the ", logits.shape()[1],
          " experts of logits");
  return {logits.shape()[0], k};
}

MoeRouteParams params_of(const Buffer& logits, std::int64_t k, bool normalise, Accumulate accumulate) {
  return {.tokens = logits.shape()[0],
          .experts = logits.shape()[1],
          .k = k,
          .normalise = normalise ? 1u : 0u,
          .accumulate = static_cast<std::uint32_t>(accumulate)};
}

}  // namespace

void moe_route_forward(CommandEncoder& encoder, const Buffer& logits, const Buffer& weights,
                       const Buffer& indices, bool normalise) {
  check_values("moe_route", "weights", weights);
  const Shape choice = checked_choice("moe_route", logits, weights.shape().cols());
  check_is("moe_route", "weights", weights, DType::f32, choice);
  check_is("moe_route", "indices", indices, DType::u32, choice);
  encoder.encode({.kernel = str("moe_route_forward_", logits.dtype()),
                  .params = params_bytes(params_of(logits, choice[1], normalise, Accumulate::no)),
                  .reads = {logits},
                  .writes = {weights, indices}});
}

void moe_route_backward(CommandEncoder& encoder, const Buffer& logits, const Buffer& weights,
                        const Buffer& indices, const Buffer& dweights, const Buffer& dlogits, bool normalise,
                        Accumulate accumulate) {
  const char* op = "moe_route_backward";
  check_values(op, "weights", weights);
  const Shape choice = checked_choice(op, logits, weights.shape().cols());
  check_is(op, "weights", weights, DType::f32, choice);
  check_is(op, "indices", indices, DType::u32, choice);
  check_is(op, "dweights", dweights, DType::f32, choice);
  check_like(op, "dlogits", dlogits, "logits", logits);
  check_no_overlap(op, "dlogits", dlogits, "logits", logits);
  encoder.encode({.kernel = str("moe_route_backward_", logits.dtype()),
                  .params = params_bytes(params_of(logits, choice[1], normalise, accumulate)),
                  .reads = {logits, weights, indices, dweights},
                  .writes = {dlogits}});
}

MoeRoute moe_route(const Var& logits, std::int64_t k, bool normalise) {
  Tape& tape = common_tape("moe_route", {logits});
  const Shape choice = checked_choice("moe_route", logits.value(), k);
  const Buffer weights = tape.alloc(DType::f32, choice), indices = tape.alloc(DType::u32, choice);
  moe_route_forward(tape.encoder(), logits.value(), weights, indices, normalise);
  const auto rule = [x = logits.value(), weights, indices, normalise](Backward& b) {
    const auto [dlogits, accumulate] = b.grad(0);
    moe_route_backward(b.encoder(), x, weights, indices, b.dy(), dlogits, normalise, accumulate);
  };
  return {tape.record("moe_route", {logits}, weights, rule), indices};
}

MoePlan moe_plan(CommandEncoder& encoder, const Buffer& indices, std::int64_t n_experts) {
  require(indices && indices.dtype() == DType::u32 && indices.shape().rank() == 2 && indices.shape()[1] > 0,
          "moe_plan: indices is ", indices, ", expected u32 [tokens, k]");
  require(n_experts > 0, "moe_plan: n_experts is ", n_experts, ", expected 1 or more");
  const std::int64_t slots = indices.numel();
  require(slots < std::int64_t{1} << 32, "moe_plan: indices is ", indices,
          ", expected fewer than 2^32 slots");
  const Device& device = encoder.device();
  const auto places = [&] { return device.alloc_uninitialized(DType::u32, {slots}); };
  const MoePlan plan{places(), places(), places(), device.alloc(DType::u32, {n_experts + 1}), places()};
  encoder.encode({.kernel = "moe_plan",
                  .params = params_bytes(MoePlanParams{slots, n_experts, indices.shape()[1]}),
                  .reads = {indices},
                  .writes = {plan.order, plan.rows, plan.inverse, plan.offsets, plan.experts},
                  .is_empty = slots == 0});
  return plan;
}

}  // namespace mixtape
