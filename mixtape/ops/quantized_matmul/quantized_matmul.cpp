#include "mixtape/ops/quantized_matmul/quantized_matmul.h"

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
          .wanted_scales = 0,
          .accumulate_scales = 0};
}

// x [..,K] (or dx) and y [..,N] (or dy) against each other and the weight.
void check_rows(const char* op, const char* x_name, const Buffer& x, const char* y_name, const Buffer& y,
                QuantizedMatmulParams& p) {
  check_values(op, x_name, x);
  check_values(op, y_name, y);
  check_not_empty(op, x_name, x);
  require(x.shape().cols() == p.k && (p.has_offsets == 0 || x.shape().rank() == 2), op, ": ", x_name, " is ",
          x, ", expected ", p.has_offsets ? "[T," : "[..,", p.k, "]");
  require(y.dtype() == x.dtype() || y.dtype() == DType::f32, op, ": ", y_name, " is ", y, ", expected ",
          x.dtype(), " or f32");
  check_is(op, y_name, y, y.dtype(), x.shape().with(x.shape().rank() - 1, p.n));
  p.rows = x.shape().rows();
}

void encode(CommandEncoder& encoder, const char* kernel, DType dtype, const QuantizedMatmulParams& params,
            std::vector<Buffer> reads, const Buffer& offsets, const std::vector<Buffer>& writes) {
  if (offsets) reads.push_back(offsets);
  for (const Buffer& write : writes) {
    for (const Buffer& read : reads) check_no_overlap(kernel, "an output", write, "an input", read);
  }
  encoder.encode({.kernel = str(kernel, "_", dtype),
                  .params = params_bytes(params),
                  .reads = std::move(reads),
                  .writes = writes});
}

Var record(const char* op, const Var& x, const Buffer& codes, const Var& scales, const Var& biases,
           const Buffer& offsets, AffineParams format, std::optional<DType> out) {
  Tape& tape = common_tape(op, {x, scales, biases});
  const QuantizedMatmulParams p = check_weight(op, codes, scales.value(), biases.value(), format, offsets);
  require(x.shape().rank() > 0, op, ": x is ", x.value(), ", expected rank 1 or more");
  const DType dtype = out.value_or(x.dtype());
  const Shape shape = x.shape().with(x.shape().rank() - 1, p.n);
  if (x.shape().rows() == 0) return tape.record_empty(op, {x, scales, biases}, dtype, shape);
  const Buffer y = tape.alloc(dtype, shape);
  quantized_matmul_forward(tape.encoder(), x.value(), codes, scales.value(), biases.value(), format, offsets,
                           y);
  return tape.record(
      op, {x, scales, biases}, y,
      [x = x.value(), codes, scales = scales.value(), biases = biases.value(), offsets, format](Backward& b) {
        if (const auto [dx, accumulate] = b.grad(0); dx)
          quantized_matmul_backward_x(b.encoder(), codes, scales, biases, format, offsets, b.dy(), dx,
                                      accumulate);
        if (b.wants(1) || b.wants(2))
          quantized_matmul_backward_scales(b.encoder(), x, codes, scales, format, offsets, b.dy(), b.grad(1),
                                           b.grad(2));
      });
}

}  // namespace

void quantized_matmul_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& codes,
                              const Buffer& scales, const Buffer& biases, AffineParams format,
                              const Buffer& offsets, const Buffer& y) {
  const char* op = "quantized_matmul";
  QuantizedMatmulParams p = check_weight(op, codes, scales, biases, format, offsets);
  check_rows(op, "x", x, "y", y, p);
  encode(encoder, "quantized_matmul_forward", x.dtype(), p, {x, codes, scales, biases}, offsets, {y});
}

void quantized_matmul_backward_x(CommandEncoder& encoder, const Buffer& codes, const Buffer& scales,
                                 const Buffer& biases, AffineParams format, const Buffer& offsets,
                                 const Buffer& dy, const Buffer& dx, Accumulate accumulate) {
  const char* op = "quantized_matmul_backward_x";
  QuantizedMatmulParams p = check_weight(op, codes, scales, biases, format, offsets);
  check_rows(op, "dx", dx, "dy", dy, p);
  p.accumulate = static_cast<std::uint32_t>(accumulate);
  encode(encoder, op, dx.dtype(), p, {dy, codes, scales, biases}, offsets, {dx});
}

void quantized_matmul_backward_scales(CommandEncoder& encoder, const Buffer& x, const Buffer& codes,
                                      const Buffer& scales, AffineParams format, const Buffer& offsets,
                                      const Buffer& dy, const Backward::Target& dscales,
                                      const Backward::Target& dbiases) {
  const char* op = "quantized_matmul_backward_scales";
  QuantizedMatmulParams p = check_weight(op, codes, scales, scales, format, offsets);
  check_rows(op, "x", x, "dy", dy, p);
  std::vector<Buffer> writes;
  const auto output = [&](std::uint32_t bit, const char* name, const Backward::Target& target) {
    if (!target.buffer) return;
    check_like(op, name, target.buffer, "scales", scales);
    check_no_overlap(op, name, target.buffer, "scales", scales);
    p.wanted_scales |= bit;
    if (target.accumulate == Accumulate::yes) p.accumulate_scales |= bit;
    writes.push_back(target.buffer);
  };
  output(1, "dscales", dscales);
  output(2, "dbiases", dbiases);
  if (writes.empty()) return;
  check_device(op, "scales", scales, encoder.device());
  check_gradients_apart(op, "dscales", dscales.buffer, "dbiases", dbiases.buffer,
                        dbiases.accumulate == Accumulate::yes);
  encode(encoder, op, x.dtype(), p, {dy, x, codes}, offsets, writes);
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
