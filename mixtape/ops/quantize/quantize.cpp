#include "mixtape/ops/quantize/quantize.h"

#include "mixtape/autograd/gradients.h"
#include "mixtape/ops/quantize/quantize_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

QuantizeParams make_params(const Shape& w, AffineParams affine) {
  return {w.rows(), w.cols(), affine, Rounding::gpu, {}};
}

void check_codes(const char* op, const Buffer& codes) {
  require(codes && codes.dtype() == DType::u32 && codes.shape().rank() > 0, op, ": codes is ", codes,
          ", expected u32 of rank 1 or more");
  check_row(op, "codes", codes);
}

}  // namespace

Shape packed_shape(const Shape& w, AffineParams params) {
  return w.with(w.rank() - 1, params.packed_cols(w.cols()));
}

Shape scales_shape(const Shape& w, AffineParams params) {
  return w.with(w.rank() - 1, params.groups(w.cols()));
}

QuantizedWeight alloc_quantized(const Device& device, const Shape& w, AffineParams format,
                                DType scale_dtype) {
  const Shape groups = scales_shape(w, format);
  return {device.alloc_uninitialized(DType::u32, packed_shape(w, format)),
          device.alloc_uninitialized(scale_dtype, groups), device.alloc_uninitialized(scale_dtype, groups),
          format};
}

Shape dequantized_shape(const char* op, const QuantizedWeight& q) {
  q.format.check(op);
  check_codes(op, q.codes);
  check_values(op, "scales", q.scales);
  check_row(op, "scales", q.scales);
  check_like(op, "biases", q.biases, "scales", q.scales);
  const Shape& groups = q.scales.shape();
  const Shape w = groups.with(groups.rank() - 1, groups.cols() * q.format.group_size);
  check_is(op, "codes", q.codes, DType::u32, packed_shape(w, q.format));
  return w;
}

void quantize_affine_forward(CommandEncoder& encoder, const Buffer& w, const QuantizedWeight& q,
                             Rounding rounding) {
  const char* op = "quantize_affine";
  q.format.check(op);
  check_values(op, "w", w);
  check_row(op, "w", w);
  q.format.check_cols(op, w.shape().cols());
  check_is(op, "codes", q.codes, DType::u32, packed_shape(w.shape(), q.format));
  check_values(op, "scales", q.scales);
  check_is(op, "scales", q.scales, q.scales.dtype(), scales_shape(w.shape(), q.format));
  check_like(op, "biases", q.biases, "scales", q.scales);
  check_no_overlap(op, "biases", q.biases, "scales", q.scales);
  QuantizeParams params = make_params(w.shape(), q.format);
  params.rounding = rounding;
  encoder.encode({.kernel = str("quantize_affine_forward_", w.dtype()),
                  .params = params_bytes(params),
                  .reads = {w},
                  .writes = {q.codes, q.scales, q.biases}});
}

void dequantize_affine_forward(CommandEncoder& encoder, const QuantizedWeight& q, const Buffer& w) {
  const char* op = "dequantize_affine";
  const Shape shape = dequantized_shape(op, q);
  check_values(op, "w", w);
  check_is(op, "w", w, w.dtype(), shape);
  encoder.encode({.kernel = str("dequantize_affine_forward_", w.dtype(), "_", q.scales.dtype()),
                  .params = params_bytes(make_params(shape, q.format)),
                  .reads = {q.codes, q.scales, q.biases},
                  .writes = {w}});
}

void dequantize_affine_backward(CommandEncoder& encoder, const QuantizedWeight& q, const Buffer& dw,
                                const Backward::Target& dscales, const Backward::Target& dbiases) {
  const char* op = "dequantize_affine_backward";
  const Shape shape = dequantized_shape(op, q);
  check_values(op, "dw", dw);
  check_is(op, "dw", dw, dw.dtype(), shape);
  Gradients out(op, encoder);
  const std::vector<Buffer> inputs = {q.codes, q.scales, q.biases, dw};
  out.add("dscales", dscales, "scales", q.scales, inputs);
  out.add("dbiases", dbiases, "biases", q.biases, inputs);
  if (out.writes().empty()) return;
  QuantizeParams params = make_params(shape, q.format);
  params.out = {out.wanted(), out.accumulate()};
  encoder.encode({.kernel = str("dequantize_affine_backward_", dw.dtype(), "_", q.scales.dtype()),
                  .params = params_bytes(params),
                  .reads = {dw, q.codes},
                  .writes = out.writes()});
}

Var dequantize_affine(const QuantizedVar& q, DType dtype) {
  const char* op = "dequantize_affine";
  Tape& tape = common_tape(op, {q.scales, q.biases});
  const QuantizedWeight weight = q.value();
  const Buffer w = tape.alloc(dtype, dequantized_shape(op, weight));
  dequantize_affine_forward(tape.encoder(), weight, w);
  return tape.record(op, {q.scales, q.biases}, w, [weight](Backward& b) {
    const auto dscales = b.grad(0), dbiases = b.grad(1);
    dequantize_affine_backward(b.encoder(), weight, b.dy(), dscales, dbiases);
  });
}

}  // namespace mixtape
