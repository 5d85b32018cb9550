#include "mixtape/ops/block_scales/block_scales.h"

#include "mixtape/autograd/gradients.h"
#include "mixtape/ops/block_scales/block_scales_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

// The shape of y.
Shape check_inputs(const char* op, const Buffer& d, const Buffer& u, const BlockScaleRule& rule) {
  require(rule.groups > 0, op, ": groups is ", rule.groups, ", expected 1 or more");
  require(rule.grid.lowest <= rule.grid.highest, op, ": the grid is ", rule.grid.lowest, " to ",
          rule.grid.highest, ", expected a lowest of at most the highest");
  require(d && d.dtype() == DType::f32 && d.shape().rank() > 0, op, ": d is ", d,
          ", expected f32 of rank 1 or more");
  check_row(op, "d", d);
  const Shape& blocks = d.shape();
  const Shape groups = blocks.with(blocks.rank() - 1, blocks.cols() * rule.groups);
  if (rule.grid.is_stored()) {
    check_is(op, "u", u, DType::f32, groups);
  } else {
    require(!u, op, ": u is ", u, ", expected none for a grid of one number");
  }
  return groups;
}

BlockScalesParams params_of(const Buffer& d, const BlockScaleRule& rule) {
  const bool has_sub = rule.grid.is_stored();
  return {d.numel(),
          rule.groups,
          static_cast<float>(rule.grid.lowest),
          static_cast<float>(rule.grid.highest),
          rule.factor,
          has_sub ? 1u : 0u,
          0,
          0};
}

}  // namespace

void block_scales_forward(CommandEncoder& encoder, const Buffer& d, const Buffer& u, const Buffer& y,
                          const BlockScaleRule& rule) {
  const char* op = "block_scales";
  check_is(op, "y", y, DType::f32, check_inputs(op, d, u, rule));
  check_no_overlap(op, "y", y, "d", d);
  if (u) check_no_overlap(op, "y", y, "u", u);
  encoder.encode({.kernel = "block_scales_forward",
                  .params = params_bytes(params_of(d, rule)),
                  .reads = u ? std::vector<Buffer>{d, u} : std::vector<Buffer>{d},
                  .writes = {y}});
}

void block_scales_backward(CommandEncoder& encoder, const Buffer& dy, const Buffer& d, const Buffer& u,
                           const Backward::Target& dd, const Backward::Target& du,
                           const BlockScaleRule& rule) {
  const char* op = "block_scales_backward";
  check_is(op, "dy", dy, DType::f32, check_inputs(op, d, u, rule));
  std::vector<Buffer> reads = {dy, d};
  if (u) reads.push_back(u);
  Gradients out(op, encoder);
  out.add("dd", dd, "d", d, reads);
  if (u) out.add("du", du, "u", u, reads);
  if (out.writes().empty()) return;
  BlockScalesParams params = params_of(d, rule);
  params.wanted = out.wanted();
  params.accumulate = out.accumulate();
  encoder.encode({.kernel = "block_scales_backward",
                  .params = params_bytes(params),
                  .reads = reads,
                  .writes = out.writes(),
                  .adds = out.adds()});
}

Var block_scales(const Var& d, const Var& u, const BlockScaleRule& rule) {
  const char* op = "block_scales";
  const std::vector<Var> inputs = u.value() ? std::vector<Var>{d, u} : std::vector<Var>{d};
  Tape& tape = common_tape(op, inputs);
  const Buffer y = tape.alloc(DType::f32, check_inputs(op, d.value(), u.value(), rule));
  block_scales_forward(tape.encoder(), d.value(), u.value(), y, rule);
  return tape.record(op, inputs, y, [d = d.value(), u = u.value(), rule](Backward& b) {
    const auto dd = b.grad(0);
    const auto du = u ? b.grad(1) : Backward::Target();
    block_scales_backward(b.encoder(), b.dy(), d, u, dd, du, rule);
  });
}

}  // namespace mixtape
