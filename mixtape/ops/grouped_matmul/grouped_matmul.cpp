#include "mixtape/ops/grouped_matmul/grouped_matmul.h"

#include "mixtape/autograd/gradients.h"
#include "mixtape/ops/grouped_matmul/grouped_matmul_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

GroupedMatmulParams check(const char* op, const Buffer& x, const Buffer& w, const Buffer& offsets,
                          const char* y_name, const Buffer& y) {
  check_values(op, "x", x);
  check_values(op, "w", w);
  check_values(op, y_name, y);
  check_not_empty(op, "w", w);
  require(x.shape().rank() == 2, op, ": x is ", x, ", expected [T,K]");
  require(w.shape().rank() == 3 && w.dtype() == x.dtype() && w.shape()[2] == x.shape()[1], op, ": w is ", w,
          ", expected ", x.dtype(), "[E,N,", x.shape()[1], "] to go with x ", x);
  check_is(op, "offsets", offsets, DType::u32, {w.shape()[0] + 1});
  require(y.dtype() == x.dtype() || y.dtype() == DType::f32, op, ": ", y_name, " is ", y, ", expected ",
          x.dtype(), " or f32");
  check_is(op, y_name, y, y.dtype(), {x.shape()[0], w.shape()[1]});
  return {x.shape()[0], w.shape()[0], w.shape()[1], w.shape()[2], 0};
}

void encode(CommandEncoder& encoder, const char* kernel, GroupedMatmulParams params,
            std::vector<Buffer> reads, const Backward::Target& out) {
  params.accumulate = static_cast<std::uint32_t>(out.accumulate);
  encoder.encode({.kernel = str(kernel, reads[1].dtype()),
                  .params = params_bytes(params),
                  .reads = std::move(reads),
                  .writes = {out.buffer},
                  .is_empty = params.rows == 0,
                  .adds = params.accumulate});
}

}  // namespace

void grouped_matmul_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, const Buffer& offsets,
                            const Buffer& y) {
  const auto params = check("grouped_matmul", x, w, offsets, "y", y);
  check_no_overlap("grouped_matmul", "y", y, "x", x);
  check_no_overlap("grouped_matmul", "y", y, "w", w);
  encode(encoder, "grouped_matmul_forward_", params, {x, w, offsets}, {y, Accumulate::no});
}

void grouped_matmul_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, const Buffer& offsets,
                             const Buffer& dy, const Backward::Target& dx, const Backward::Target& dw) {
  const char* op = "grouped_matmul_backward";
  require((x || !dw.buffer) && (w || !dx.buffer), op, ": x is ", x, ", w is ", w, ", expected both");
  const Buffer &like_x = x ? x : dx.buffer, &like_w = w ? w : dw.buffer;
  const auto params = check(op, like_x, like_w, offsets, "dy", dy);
  for (const Buffer& input : {like_x, like_w}) check_device(op, "an operand", input, encoder.device());
  Gradients out(op, encoder);
  out.add("dx", dx, "x", like_x, {x, w, dy});
  out.add("dw", dw, "w", like_w, {x, w, dy});
  if (dx.buffer) encode(encoder, "grouped_matmul_backward_x_", params, {dy, w, offsets}, dx);
  if (dw.buffer) encode(encoder, "grouped_matmul_backward_w_", params, {dy, x, offsets}, dw);
}

void grouped_matmul_backward_pair(CommandEncoder& encoder, const Buffer& w1, const Buffer& dy1,
                                  const Buffer& w2, const Buffer& dy2, const Buffer& offsets,
                                  const Backward::Target& dx) {
  const char* op = "grouped_matmul_backward_pair";
  const auto params = check(op, dx.buffer, w1, offsets, "dy1", dy1);
  check_like(op, "w2", w2, "w1", w1);
  check_like(op, "dy2", dy2, "dy1", dy1);
  for (const Buffer& input : {w1, dy1, w2, dy2}) check_no_overlap(op, "dx", dx.buffer, "an operand", input);
  encode(encoder, "grouped_matmul_backward_pair_", params, {dy1, w1, dy2, w2, offsets}, dx);
}

Var grouped_matmul(const Var& x, const Var& w, const Buffer& offsets, std::optional<DType> out) {
  const char* op = "grouped_matmul";
  Tape& tape = common_tape(op, {x, w});
  require(x.shape().rank() == 2 && w.shape().rank() == 3, op, ": x is ", x.value(), ", w is ", w.value(),
          ", expected [T,K] and [E,N,K]");
  const DType dtype = out.value_or(x.dtype());
  const Shape shape{x.shape()[0], w.shape()[1]};
  const Buffer y = tape.alloc(dtype, shape);
  grouped_matmul_forward(tape.encoder(), x.value(), w.value(), offsets, y);
  return tape.record(op, {x, w}, y, [x = x.value(), w = w.value(), offsets](Backward& b) {
    const auto dx = b.grad(0), dw = b.grad(1);
    grouped_matmul_backward(b.encoder(), x, w, offsets, b.dy(), dx, dw);
  });
}

}  // namespace mixtape
