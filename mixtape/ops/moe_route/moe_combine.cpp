#include "mixtape/autograd/gradients.h"
#include "mixtape/ops/embedding/embedding.h"
#include "mixtape/ops/moe_route/moe_route.h"
#include "mixtape/ops/moe_route/moe_route_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

MoeCombineParams checked_params(const char* op, const Buffer& x, const Buffer& weights,
                                const Buffer& inverse) {
  require(weights && weights.dtype() == DType::f32 && weights.shape().rank() == 2 && weights.shape()[1] > 0,
          op, ": weights is ", weights, ", expected f32 [tokens, k]");
  check_values(op, "x", x);
  require(x.shape().rank() == 2 && x.shape()[0] == weights.numel() && x.shape()[1] > 0, op, ": x is ", x,
          ", expected [", weights.numel(), ", cols] for weights ", weights);
  check_is(op, "inverse", inverse, DType::u32, {weights.numel()});
  MoeCombineParams params{};
  params.tokens = weights.shape()[0];
  params.k = weights.shape()[1];
  params.cols = x.shape()[1];
  return params;
}

}  // namespace

void moe_combine_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& weights,
                         const Buffer& inverse, const Buffer& y, const Buffer& addend) {
  MoeCombineParams params = checked_params("moe_combine", x, weights, inverse);
  check_is("moe_combine", "y", y, x.dtype(), {params.tokens, params.cols});
  check_no_overlap("moe_combine", "y", y, "x", x);
  std::vector<Buffer> reads = {x, weights, inverse};
  if (addend) {
    check_is("moe_combine", "addend", addend, y.dtype(), y.shape());
    check_no_overlap("moe_combine", "y", y, "addend", addend);
    params.has_addend = 1;
    reads.push_back(addend);
  }
  encoder.encode({.kernel = str("moe_combine_forward_", x.dtype()),
                  .params = params_bytes(params),
                  .reads = reads,
                  .writes = {y}});
}

void moe_combine_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& weights,
                          const Buffer& inverse, const Buffer& dy, const Backward::Target& dx,
                          const Backward::Target& dweights) {
  const char* op = "moe_combine_backward";
  MoeCombineParams params = checked_params(op, x, weights, inverse);
  check_is(op, "dy", dy, x.dtype(), {params.tokens, params.cols});
  Gradients out(op, encoder);
  out.add("dx", dx, "x", x, {x, dy});
  out.add("dweights", dweights, "weights", weights, {weights});
  if (out.writes().empty()) return;
  params.wanted = out.wanted();
  params.accumulate = out.accumulate();
  encoder.encode({.kernel = str("moe_combine_backward_", x.dtype()),
                  .params = params_bytes(params),
                  .reads = {x, weights, inverse, dy},
                  .writes = out.writes()});
}

// The backward is a combination with weights of 1: no sorting, unlike a table's gradient.
Var moe_dispatch(const Var& x, const MoePlan& plan) {
  require(x.value() && x.shape().rank() == 2 && x.shape()[1] > 0, "moe_dispatch: x is ", x.value(),
          ", expected [tokens, cols]");
  const std::int64_t tokens = x.shape()[0], slots = plan.rows.numel();
  const bool fits = tokens == 0 ? slots == 0 : slots > 0 && slots % tokens == 0;
  require(fits, "moe_dispatch: the plan has ", slots, " places, expected some for each of ", tokens,
          " tokens");
  Tape& tape = common_tape("moe_dispatch", {x});
  const Buffer y = tape.alloc(x.dtype(), {slots, x.shape()[1]});
  embedding_forward(tape.encoder(), x.value(), plan.rows, y);
  return tape.record("moe_dispatch", {x}, y, [tokens, slots, inverse = plan.inverse](Backward& b) {
    const auto [dx, accumulate] = b.grad(0);
    const Device& device = b.encoder().device();
    const Buffer ones = device.alloc_uninitialized(DType::f32, {tokens, tokens > 0 ? slots / tokens : 1});
    b.encoder().fill(ones, 1.0f);
    const Buffer sum = accumulate == Accumulate::no ? dx : device.alloc_uninitialized(dx.dtype(), dx.shape());
    moe_combine_forward(b.encoder(), b.dy(), ones, inverse, sum);
    if (accumulate == Accumulate::yes) b.encoder().accumulate(sum, dx);
  });
}

Var moe_combine(const Var& x, const Var& weights, const MoePlan& plan, const Var& addend) {
  std::vector<Var> inputs = {x, weights};
  if (addend.value()) inputs.push_back(addend);
  Tape& tape = common_tape("moe_combine", inputs);
  const Buffer& inverse = plan.inverse;
  const MoeCombineParams params = checked_params("moe_combine", x.value(), weights.value(), inverse);
  const Buffer y = tape.alloc(x.dtype(), {params.tokens, params.cols});
  moe_combine_forward(tape.encoder(), x.value(), weights.value(), inverse, y, addend.value());
  const bool adds = static_cast<bool>(addend.value());
  return tape.record("moe_combine", inputs, y,
                     [x = x.value(), w = weights.value(), inverse, adds](Backward& b) {
                       const auto dx = b.grad(0), dweights = b.grad(1);
                       moe_combine_backward(b.encoder(), x, w, inverse, b.dy(), dx, dweights);
                       if (adds && b.wants(2)) b.pass(2, b.dy());
                     });
}

}  // namespace mixtape
