#include "mixtape/ops/grouped_matmul/grouped_matmul.h"

#include "mixtape/ops/grouped_matmul/grouped_matmul_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

GroupedMatmulParams check(const char* op, const Buffer& x, const Buffer& w, const Buffer& offsets,
                          const char* y_name, const Buffer& y, Accumulate accumulate) {
  check_values(op, "x", x);
  check_values(op, "w", w);
  check_values(op, y_name, y);
  check_not_empty(op, "x", x);
  check_not_empty(op, "w", w);
  require(x.shape().rank() == 2, op, ": x is ", x, ", expected [T,K]");
  require(w.shape().rank() == 3 && w.dtype() == x.dtype() && w.shape()[2] == x.shape()[1], op, ": w is ", w,
          ", expected ", x.dtype(), "[E,N,", x.shape()[1], "] to go with x ", x);
  check_is(op, "offsets", offsets, DType::u32, {w.shape()[0] + 1});
  require(y.dtype() == x.dtype() || y.dtype() == DType::f32, op, ": ", y_name, " is ", y, ", expected ",
          x.dtype(), " or f32");
  check_is(op, y_name, y, y.dtype(), {x.shape()[0], w.shape()[1]});
  return {x.shape()[0], w.shape()[0], w.shape()[1], w.shape()[2], static_cast<std::uint32_t>(accumulate)};
}

void encode(CommandEncoder& encoder, const char* kernel, const GroupedMatmulParams& params, const Buffer& a,
            const Buffer& b, const Buffer& offsets, const Buffer& out) {
  check_no_overlap(kernel, "the output", out, "an input", a);
  check_no_overlap(kernel, "the output", out, "an input", b);
  encoder.encode({.kernel = str(kernel, "_", b.dtype()),
                  .params = params_bytes(params),
                  .reads = {a, b, offsets},
                  .writes = {out}});
}

}  // namespace

void grouped_matmul_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, const Buffer& offsets,
                            const Buffer& y) {
  const auto params = check("grouped_matmul", x, w, offsets, "y", y, Accumulate::no);
  encode(encoder, "grouped_matmul_forward", params, x, w, offsets, y);
}

void grouped_matmul_backward_x(CommandEncoder& encoder, const Buffer& w, const Buffer& offsets,
                               const Buffer& dy, const Buffer& dx, Accumulate accumulate) {
  const auto params = check("grouped_matmul_backward_x", dx, w, offsets, "dy", dy, accumulate);
  encode(encoder, "grouped_matmul_backward_x", params, dy, w, offsets, dx);
}

void grouped_matmul_backward_w(CommandEncoder& encoder, const Buffer& x, const Buffer& offsets,
                               const Buffer& dy, const Buffer& dw, Accumulate accumulate) {
  const auto params = check("grouped_matmul_backward_w", x, dw, offsets, "dy", dy, accumulate);
  encode(encoder, "grouped_matmul_backward_w", params, dy, x, offsets, dw);
}

Var grouped_matmul(const Var& x, const Var& w, const Buffer& offsets, std::optional<DType> out) {
  const char* op = "grouped_matmul";
  Tape& tape = common_tape(op, {x, w});
  require(x.shape().rank() == 2 && w.shape().rank() == 3, op, ": x is ", x.value(), ", w is ", w.value(),
          ", expected [T,K] and [E,N,K]");
  const DType dtype = out.value_or(x.dtype());
  const Shape shape{x.shape()[0], w.shape()[1]};
  if (x.shape()[0] == 0) return tape.record_empty(op, {x, w}, dtype, shape);
  const Buffer y = tape.alloc(dtype, shape);
  grouped_matmul_forward(tape.encoder(), x.value(), w.value(), offsets, y);
  return tape.record(op, {x, w}, y, [x = x.value(), w = w.value(), offsets](Backward& b) {
    if (const auto [dx, accumulate] = b.grad(0); dx)
      grouped_matmul_backward_x(b.encoder(), w, offsets, b.dy(), dx, accumulate);
    if (const auto [dw, accumulate] = b.grad(1); dw)
      grouped_matmul_backward_w(b.encoder(), x, offsets, b.dy(), dw, accumulate);
  });
}

}  // namespace mixtape
