#include "mixtape/ops/quantized_matmul/quantized_matmul.h"

#include "mixtape/autograd/gradients.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/ops/quantized_matmul/quantized_matmul_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

// Checks the weight and reads its sizes; the row count comes from check_rows.
QuantizedMatmulParams check_weight(const char* op, const QuantizedWeight& w, const Buffer& offsets) {
  const Shape shape = dequantized_shape(op, w);
  const std::int64_t rank = offsets ? 3 : 2;
  require(shape.rank() == rank && shape.numel() > 0, op, ": codes is ", w.codes, ", expected rank ", rank,
          offsets ? " with offsets" : " without offsets", ", no dimension of 0");
  const std::int64_t experts = offsets ? shape[0] : 1;
  if (offsets) check_is(op, "offsets", offsets, DType::u32, {experts + 1});
  return {.rows = 0,
          .experts = experts,
          .n = shape[rank - 2],
          .k = shape[rank - 1],
          .format = w.format,
          .has_offsets = static_cast<bool>(offsets),
          .has_addend = 0,
          .accumulate = 0,
          .out = {}};
}

// x [..,K] (or dx) and y [..,N] (or dy) against each other and the weight.
void check_rows(const char* op, const char* x_name, const Buffer& x, const char* y_name, const Buffer& y,
                QuantizedMatmulParams& p) {
  check_values(op, x_name, x);
  check_values(op, y_name, y);
  require(x.shape().cols() == p.k && (p.has_offsets == 0 || x.shape().rank() == 2), op, ": ", x_name, " is ",
          x, ", expected ", p.has_offsets ? "[T," : "[..,", p.k, "]");
  require(y.dtype() == x.dtype() || y.dtype() == DType::f32, op, ": ", y_name, " is ", y, ", expected ",
          x.dtype(), " or f32");
  check_is(op, y_name, y, y.dtype(), x.shape().with(x.shape().rank() - 1, p.n));
  p.rows = x.shape().rows();
}

Var record(const char* op, const Var& x, const QuantizedVar& w, const Buffer& offsets,
           std::optional<DType> out, const Var& addend = Var()) {
  std::vector<Var> inputs = {x, w.scales, w.biases};
  if (addend.value()) inputs.push_back(addend);
  Tape& tape = common_tape(op, inputs);
  const QuantizedWeight weight = w.value();
  const QuantizedMatmulParams p = check_weight(op, weight, offsets);
  require(x.shape().rank() > 0, op, ": x is ", x.value(), ", expected rank 1 or more");
  const Shape shape = x.shape().with(x.shape().rank() - 1, p.n);
  const Buffer y = tape.alloc(out.value_or(x.dtype()), shape);
  quantized_matmul_forward(tape.encoder(), x.value(), weight, offsets, y, addend.value());
  const bool adds = static_cast<bool>(addend.value());
  return tape.record(op, inputs, y, [x = x.value(), weight, offsets, adds](Backward& b) {
    const auto dx = b.grad(0), dscales = b.grad(1), dbiases = b.grad(2);
    quantized_matmul_backward(b.encoder(), x, weight, offsets, b.dy(), dx, dscales, dbiases);
    if (adds && b.wants(3)) b.pass(3, b.dy());
  });
}

}  // namespace

void quantized_matmul_forward(CommandEncoder& encoder, const Buffer& x, const QuantizedWeight& w,
                              const Buffer& offsets, const Buffer& y, const Buffer& addend) {
  const char* op = "quantized_matmul";
  require(!offsets || !addend, op, ": addend is ", addend, ", expected none with offsets");
  QuantizedMatmulParams p = check_weight(op, w, offsets);
  check_rows(op, "x", x, "y", y, p);
  std::vector<Buffer> reads = {x, w.codes, w.scales, w.biases};
  if (addend) {
    check_is(op, "addend", addend, y.dtype(), y.shape());
    reads.push_back(addend);
    p.has_addend = 1;
  }
  for (const Buffer& read : reads) check_no_overlap(op, "y", y, "an input", read);
  if (offsets) reads.push_back(offsets);
  encoder.encode({.kernel = str("quantized_matmul_forward_", x.dtype()),
                  .params = params_bytes(p),
                  .reads = std::move(reads),
                  .writes = {y}});
}

void quantized_matmul_backward(CommandEncoder& encoder, const Buffer& x, const QuantizedWeight& w,
                               const Buffer& offsets, const Buffer& dy, const Backward::Target& dx,
                               const Backward::Target& dscales, const Backward::Target& dbiases) {
  const char* op = "quantized_matmul_backward";
  QuantizedMatmulParams p = check_weight(op, w, offsets);
  check_rows(op, "x", x, "dy", dy, p);
  std::vector<Buffer> inputs = {x, w.codes, w.scales, w.biases, dy};
  Gradients of_x(op, encoder), of_scales(op, encoder);
  of_x.add("dx", dx, "x", x, inputs);
  if (dx.buffer) inputs.push_back(dx.buffer);
  of_scales.add("dscales", dscales, "scales", w.scales, inputs);
  of_scales.add("dbiases", dbiases, "biases", w.biases, inputs);
  p.accumulate = of_x.accumulate();
  p.out = {of_scales.wanted(), of_scales.accumulate()};
  const auto encode_one = [&](const char* kernel, std::vector<Buffer> reads, const Gradients& out) {
    if (out.writes().empty()) return;
    if (offsets) reads.push_back(offsets);
    encoder.encode({.kernel = str(kernel, x.dtype()),
                    .params = params_bytes(p),
                    .reads = std::move(reads),
                    .writes = out.writes(),
                    .is_empty = p.rows == 0,
                    .adds = out.adds()});
  };
  encode_one("quantized_matmul_backward_x_", {dy, w.codes, w.scales, w.biases}, of_x);
  encode_one("quantized_matmul_backward_scales_", {dy, x, w.codes}, of_scales);
}

Var quantized_matmul(const Var& x, const QuantizedVar& w, std::optional<DType> out, const Var& addend) {
  return record("quantized_matmul", x, w, Buffer(), out, addend);
}

Var grouped_quantized_matmul(const Var& x, const QuantizedVar& w, const Buffer& offsets,
                             std::optional<DType> out) {
  require(static_cast<bool>(offsets), "grouped_quantized_matmul: offsets is null, expected u32 [E+1]");
  return record("grouped_quantized_matmul", x, w, offsets, out);
}

}  // namespace mixtape
