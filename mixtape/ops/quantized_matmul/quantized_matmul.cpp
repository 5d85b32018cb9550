#include "mixtape/ops/quantized_matmul/quantized_matmul.h"

#include "mixtape/autograd/gradients.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/ops/quantized_matmul/quantized_matmul_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

// Checks the weight and reads its sizes; the row count comes from check_rows.
QuantizedMatmulParams check_weight(const char* op, const Buffer& codes, const Buffer& scales,
                                   const Buffer& biases, AffineParams format, const Buffer& offsets) {
  const Shape w = dequantized_shape(op, codes, scales, biases, format);
  const std::int64_t rank = offsets ? 3 : 2;
  require(w.rank() == rank && w.numel() > 0, op, ": codes is ", codes, ", expected rank ", rank,
          offsets ? " with offsets" : " without offsets", ", no dimension of 0");
  const std::int64_t experts = offsets ? w[0] : 1;
  if (offsets) check_is(op, "offsets", offsets, DType::u32, {experts + 1});
  return {.rows = 0,
          .experts = experts,
          .n = w[rank - 2],
          .k = w[rank - 1],
          .format = format,
          .has_offsets = static_cast<bool>(offsets),
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

Var record(const char* op, const Var& x, const Buffer& codes, const Var& scales, const Var& biases,
           const Buffer& offsets, AffineParams format, std::optional<DType> out) {
  Tape& tape = common_tape(op, {x, scales, biases});
  const QuantizedMatmulParams p = check_weight(op, codes, scales.value(), biases.value(), format, offsets);
  require(x.shape().rank() > 0, op, ": x is ", x.value(), ", expected rank 1 or more");
  const DType dtype = out.value_or(x.dtype());
  const Shape shape = x.shape().with(x.shape().rank() - 1, p.n);
  const Buffer y = tape.alloc(dtype, shape);
  quantized_matmul_forward(tape.encoder(), x.value(), codes, scales.value(), biases.value(), format, offsets,
                           y);
  return tape.record(
      op, {x, scales, biases}, y,
      [x = x.value(), codes, scales = scales.value(), biases = biases.value(), offsets, format](Backward& b) {
        const auto dx = b.grad(0), dscales = b.grad(1), dbiases = b.grad(2);
        quantized_matmul_backward(b.encoder(), x, codes, scales, biases, format, offsets, b.dy(), dx, dscales,
                                  dbiases);
      });
}

}  // namespace

void quantized_matmul_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& codes,
                              const Buffer& scales, const Buffer& biases, AffineParams format,
                              const Buffer& offsets, const Buffer& y) {
  const char* op = "quantized_matmul";
  QuantizedMatmulParams p = check_weight(op, codes, scales, biases, format, offsets);
  check_rows(op, "x", x, "y", y, p);
  std::vector<Buffer> reads = {x, codes, scales, biases};
  for (const Buffer& read : reads) check_no_overlap(op, "y", y, "an input", read);
  if (offsets) reads.push_back(offsets);
  encoder.encode({.kernel = str("quantized_matmul_forward_", x.dtype()),
                  .params = params_bytes(p),
                  .reads = std::move(reads),
                  .writes = {y}});
}

void quantized_matmul_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& codes,
                               const Buffer& scales, const Buffer& biases, AffineParams format,
                               const Buffer& offsets, const Buffer& dy, const Backward::Target& dx,
                               const Backward::Target& dscales, const Backward::Target& dbiases) {
  const char* op = "quantized_matmul_backward";
  QuantizedMatmulParams p = check_weight(op, codes, scales, biases, format, offsets);
  check_rows(op, "x", x, "dy", dy, p);
  std::vector<Buffer> inputs = {x, codes, scales, biases, dy};
  for (const Buffer& input : inputs) check_device(op, "an input", input, encoder.device());
  Gradients of_x(op, encoder), of_scales(op, encoder);
  of_x.add("dx", dx, "x", x, inputs);
  if (dx.buffer) inputs.push_back(dx.buffer);
  of_scales.add("dscales", dscales, "scales", scales, inputs);
  of_scales.add("dbiases", dbiases, "biases", biases, inputs);
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
  encode_one("quantized_matmul_backward_x_", {dy, codes, scales, biases}, of_x);
  encode_one("quantized_matmul_backward_scales_", {dy, x, codes}, of_scales);
}

Var quantized_matmul(const Var& x, const Buffer& codes, const Var& scales, const Var& biases,
                     AffineParams format, std::optional<DType> out) {
  return record("quantized_matmul", x, codes, scales, biases, Buffer(), format, out);
}

Var grouped_quantized_matmul(const Var& x, const Buffer& codes, const Var& scales, const Var& biases,
                             const Buffer& offsets, AffineParams format, std::optional<DType> out) {
  require(static_cast<bool>(offsets), "grouped_quantized_matmul: offsets is null, expected u32 [E+1]");
  return record("grouped_quantized_matmul", x, codes, scales, biases, offsets, format, out);
}

}  // namespace mixtape
