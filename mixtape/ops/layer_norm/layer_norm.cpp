#include "mixtape/ops/layer_norm/layer_norm.h"

#include <cmath>

#include "mixtape/autograd/gradients.h"
#include "mixtape/ops/layer_norm/layer_norm_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

void check_vector(const char* op, const char* argument, const Buffer& found, const Buffer& x) {
  if (found) check_is(op, argument, found, x.dtype(), {x.shape().cols()});
}

LayerNormParams params_of(const Buffer& x, const Buffer& w) {
  LayerNormParams params{};
  params.rows = x.shape().rows();
  params.cols = x.shape().cols();
  params.row_block = layer_norm_row_block(params.rows);
  params.has_weight = w ? 1 : 0;
  return params;
}

// Null Vars stand for what is left out.
Var normed(const Var& x, const Var& w, const Var& b, float eps) {
  std::vector<Var> given = {x};
  for (const Var& v : {w, b}) {
    if (v.value()) given.push_back(v);
  }
  Tape& tape = common_tape("layer_norm", given);
  check_values("layer_norm", "x", x.value());
  const Buffer y = tape.alloc(x.dtype(), x.shape()), stats = tape.alloc(DType::f32, {x.shape().rows(), 2});
  layer_norm_forward(tape.encoder(), x.value(), w.value(), b.value(), eps, y, stats);
  return tape.record("layer_norm", {x, w, b}, y, [x = x.value(), w = w.value(), stats](Backward& back) {
    const auto dx = back.grad(0), dw = back.grad(1), db = back.grad(2);
    layer_norm_backward(back.encoder(), x, w, stats, back.dy(), dx, dw, db);
  });
}

}  // namespace

void layer_norm_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, const Buffer& b, float eps,
                        const Buffer& y, const Buffer& stats) {
  check_values("layer_norm", "x", x);
  check_row("layer_norm", "x", x);
  check_vector("layer_norm", "w", w, x);
  check_vector("layer_norm", "b", b, x);
  require(std::isfinite(eps) && eps > 0.0f, "layer_norm: eps is ", eps, ", expected a positive number");
  check_like("layer_norm", "y", y, "x", x);
  check_is("layer_norm", "stats", stats, DType::f32, {x.shape().rows(), 2});
  LayerNormParams params = params_of(x, w);
  params.eps = eps;
  params.has_bias = b ? 1 : 0;
  std::vector<Buffer> reads = {x};
  if (w) reads.push_back(w);
  if (b) reads.push_back(b);
  encoder.encode({.kernel = str("layer_norm_forward_", x.dtype()),
                  .params = params_bytes(params),
                  .reads = reads,
                  .writes = {y, stats}});
}

void layer_norm_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, const Buffer& stats,
                         const Buffer& dy, const Backward::Target& dx, const Backward::Target& dw,
                         const Backward::Target& db) {
  constexpr const char* kOp = "layer_norm_backward";
  check_values(kOp, "x", x);
  check_row(kOp, "x", x);
  check_vector(kOp, "w", w, x);
  check_is(kOp, "stats", stats, DType::f32, {x.shape().rows(), 2});
  check_like(kOp, "dy", dy, "x", x);
  check_vector(kOp, "db", db.buffer, x);
  require(w || !dw.buffer, kOp, ": dw is ", dw.buffer, " without a w");
  std::vector<Buffer> reads = {x, stats, dy};
  if (w) reads.push_back(w);
  Gradients out(kOp, encoder);
  out.add("dx", dx, "x", x, {x});
  out.add("dw", dw, "w", w, reads);
  out.add("db", db, "b", db.buffer, reads);
  if (out.writes().empty()) return;
  LayerNormParams params = params_of(x, w);
  params.wanted = out.wanted();
  params.accumulate = out.accumulate();
  encoder.encode({.kernel = str("layer_norm_backward_", x.dtype()),
                  .params = params_bytes(params),
                  .reads = reads,
                  .writes = out.writes(),
                  .is_empty = params.rows == 0,
                  .adds = out.adds()});
}

Var layer_norm(const Var& x, float eps) { return normed(x, Var(), Var(), eps); }

Var layer_norm(const Var& x, const Var& w, float eps) {
  common_tape("layer_norm", {x, w});
  return normed(x, w, Var(), eps);
}

Var layer_norm(const Var& x, const Var& w, const Var& b, float eps) {
  common_tape("layer_norm", {x, w, b});
  return normed(x, w, b, eps);
}

}  // namespace mixtape
