#include "mixtape/ops/reduce/reduce.h"

#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

Shape row_shape(const Shape& x) {
  std::vector<std::int64_t> dims = x.dims();
  dims.pop_back();
  if (dims.empty()) dims.push_back(1);
  return Shape(dims);
}

void encode(CommandEncoder& encoder, const char* kernel, Reduction op, const Buffer& wide, Shape view,
            const Buffer& from, const Buffer& to, Accumulate accumulate) {
  const std::int64_t cols = view.cols();
  const ReduceParams params{view.rows(), cols, op == Reduction::mean ? static_cast<float>(cols) : 1.0f,
                            static_cast<std::uint32_t>(accumulate)};
  encoder.encode({.kernel = str(kernel, wide.dtype()),
                  .params = params_bytes(params),
                  .reads = {from},
                  .writes = {to},
                  .is_empty = wide.numel() == 0,
                  .adds = accumulate == Accumulate::yes});
}

const char* row_name(Reduction op) { return op == Reduction::sum ? "row_sum" : "row_mean"; }
const char* whole_name(Reduction op) { return op == Reduction::sum ? "sum" : "mean"; }

Var row_reduce(Reduction op, const Var& x) {
  Tape& tape = common_tape(row_name(op), {x});
  check_values(row_name(op), "x", x.value());
  const Shape shape = row_shape(x.shape());
  const Buffer y = tape.alloc(x.dtype(), shape);
  row_reduce_forward(tape.encoder(), op, x.value(), y);
  return tape.record(row_name(op), {x}, y, [op](Backward& b) {
    const auto [dx, accumulate] = b.grad(0);
    row_reduce_backward(b.encoder(), op, b.dy(), dx, accumulate);
  });
}

Var reduce(Reduction op, const Var& x) {
  Tape& tape = common_tape(whole_name(op), {x});
  check_values(whole_name(op), "x", x.value());
  const Buffer y = tape.alloc(DType::f32, {1});
  reduce_forward(tape.encoder(), op, x.value(), y);
  return tape.record(whole_name(op), {x}, y, [op](Backward& b) {
    const auto [dx, accumulate] = b.grad(0);
    reduce_backward(b.encoder(), op, b.dy(), dx, accumulate);
  });
}

void check_losses(const char* op, const char* argument, const Buffer& found) {
  check_values(op, argument, found);
  check_is(op, argument, found, DType::f32, {found.numel()});
}

}  // namespace

void row_reduce_forward(CommandEncoder& encoder, Reduction op, const Buffer& x, const Buffer& y) {
  check_values(row_name(op), "x", x);
  check_is(row_name(op), "y", y, x.dtype(), row_shape(x.shape()));
  encode(encoder, "row_sum_forward_", op, x, x.shape(), x, y, Accumulate::no);
}

void row_reduce_backward(CommandEncoder& encoder, Reduction op, const Buffer& dy, const Buffer& dx,
                         Accumulate accumulate) {
  const std::string what = str(row_name(op), "_backward");
  check_values(what.c_str(), "dx", dx);
  check_is(what.c_str(), "dy", dy, dx.dtype(), row_shape(dx.shape()));
  encode(encoder, "row_sum_backward_", op, dx, dx.shape(), dy, dx, accumulate);
}

void reduce_forward(CommandEncoder& encoder, Reduction op, const Buffer& x, const Buffer& y) {
  check_values(whole_name(op), "x", x);
  check_is(whole_name(op), "y", y, DType::f32, {1});
  encode(encoder, "sum_forward_", op, x, {x.numel()}, x, y, Accumulate::no);
}

void reduce_backward(CommandEncoder& encoder, Reduction op, const Buffer& dy, const Buffer& dx,
                     Accumulate accumulate) {
  const std::string what = str(whole_name(op), "_backward");
  check_values(what.c_str(), "dx", dx);
  check_is(what.c_str(), "dy", dy, DType::f32, {1});
  encode(encoder, "sum_backward_", op, dx, {dx.numel()}, dy, dx, accumulate);
}

void masked_mean_forward(CommandEncoder& encoder, const Buffer& loss, const Buffer& weights,
                         const Buffer& mean, const Buffer& total) {
  check_losses("masked_mean", "loss", loss);
  check_like("masked_mean", "weights", weights, "loss", loss);
  check_is("masked_mean", "mean", mean, DType::f32, {1});
  check_is("masked_mean", "total", total, DType::f32, {1});
  check_no_overlap("masked_mean", "mean", mean, "total", total);
  encoder.encode({.kernel = "masked_mean_forward_f32",
                  .params = params_bytes(ReduceParams{1, loss.numel(), 1.0f, 0}),
                  .reads = {loss, weights},
                  .writes = {mean, total},
                  .is_empty = loss.numel() == 0});
}

void masked_mean_backward(CommandEncoder& encoder, const Buffer& weights, const Buffer& total,
                          const Buffer& dy, const Buffer& dloss, Accumulate accumulate) {
  check_losses("masked_mean_backward", "weights", weights);
  check_is("masked_mean_backward", "total", total, DType::f32, {1});
  check_is("masked_mean_backward", "dy", dy, DType::f32, {1});
  check_like("masked_mean_backward", "dloss", dloss, "weights", weights);
  check_no_overlap("masked_mean_backward", "dloss", dloss, "weights", weights);
  const ReduceParams params{1, weights.numel(), 1.0f, static_cast<std::uint32_t>(accumulate)};
  encoder.encode({.kernel = "masked_mean_backward_f32",
                  .params = params_bytes(params),
                  .reads = {weights, total, dy},
                  .writes = {dloss}});
}

Var row_sum(const Var& x) { return row_reduce(Reduction::sum, x); }
Var row_mean(const Var& x) { return row_reduce(Reduction::mean, x); }
Var sum(const Var& x) { return reduce(Reduction::sum, x); }
Var mean(const Var& x) { return reduce(Reduction::mean, x); }

Var masked_mean(const Var& loss, const Var& weights) {
  Tape& tape = common_tape("masked_mean", {loss, weights});
  check_losses("masked_mean", "loss", loss.value());
  check_like("masked_mean", "weights", weights.value(), "loss", loss.value());
  if (weights.requires_grad()) {
    fail(ErrorCode::not_supported, "masked_mean: weights require a gradient, expected a constant");
  }
  const Buffer y = tape.alloc(DType::f32, {1});
  const Buffer total = tape.alloc(DType::f32, {1});
  masked_mean_forward(tape.encoder(), loss.value(), weights.value(), y, total);
  return tape.record("masked_mean", {loss, weights}, y, [w = weights.value(), total](Backward& b) {
    const auto [dloss, accumulate] = b.grad(0);
    masked_mean_backward(b.encoder(), w, total, b.dy(), dloss, accumulate);
  });
}

}  // namespace mixtape
