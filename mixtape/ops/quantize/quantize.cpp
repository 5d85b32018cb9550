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

Shape dequantized_shape(const char* op, const Buffer& codes, const Buffer& scales, const Buffer& biases,
                        AffineParams params) {
  params.check(op);
  check_codes(op, codes);
  check_values(op, "scales", scales);
  check_row(op, "scales", scales);
  check_like(op, "biases", biases, "scales", scales);
  const Shape w = scales.shape().with(scales.shape().rank() - 1, scales.shape().cols() * params.group_size);
  check_is(op, "codes", codes, DType::u32, packed_shape(w, params));
  return w;
}

void quantize_affine_forward(CommandEncoder& encoder, const Buffer& w, const Buffer& codes,
                             const Buffer& scales, const Buffer& biases, AffineParams affine,
                             Rounding rounding) {
  const char* op = "quantize_affine";
  affine.check(op);
  check_values(op, "w", w);
  check_row(op, "w", w);
  affine.check_cols(op, w.shape().cols());
  check_is(op, "codes", codes, DType::u32, packed_shape(w.shape(), affine));
  check_values(op, "scales", scales);
  check_is(op, "scales", scales, scales.dtype(), scales_shape(w.shape(), affine));
  check_like(op, "biases", biases, "scales", scales);
  check_no_overlap(op, "biases", biases, "scales", scales);
  QuantizeParams params = make_params(w.shape(), affine);
  params.rounding = rounding;
  encoder.encode({.kernel = str("quantize_affine_forward_", w.dtype()),
                  .params = params_bytes(params),
                  .reads = {w},
                  .writes = {codes, scales, biases}});
}

void dequantize_affine_forward(CommandEncoder& encoder, const Buffer& codes, const Buffer& scales,
                               const Buffer& biases, const Buffer& w, AffineParams affine) {
  const char* op = "dequantize_affine";
  const Shape shape = dequantized_shape(op, codes, scales, biases, affine);
  check_values(op, "w", w);
  check_is(op, "w", w, w.dtype(), shape);
  encoder.encode({.kernel = str("dequantize_affine_forward_", w.dtype(), "_", scales.dtype()),
                  .params = params_bytes(make_params(shape, affine)),
                  .reads = {codes, scales, biases},
                  .writes = {w}});
}

void dequantize_affine_backward(CommandEncoder& encoder, const Buffer& dw, const Buffer& codes,
                                const Backward::Target& dscales, const Backward::Target& dbiases,
                                AffineParams affine) {
  const char* op = "dequantize_affine_backward";
  const Buffer& wanted = dscales.buffer ? dscales.buffer : dbiases.buffer;
  if (!wanted) return;
  affine.check(op);
  check_values(op, "dw", dw);
  check_row(op, "dw", dw);
  affine.check_cols(op, dw.shape().cols());
  check_is(op, "codes", codes, DType::u32, packed_shape(dw.shape(), affine));
  const char* name = dscales.buffer ? "dscales" : "dbiases";
  check_values(op, name, wanted);
  check_is(op, name, wanted, wanted.dtype(), scales_shape(dw.shape(), affine));
  Gradients out(op, encoder);
  out.add("dscales", dscales, name, wanted);
  out.add("dbiases", dbiases, name, wanted);
  QuantizeParams params = make_params(dw.shape(), affine);
  params.out = {out.wanted(), out.accumulate()};
  encoder.encode({.kernel = str("dequantize_affine_backward_", dw.dtype(), "_", wanted.dtype()),
                  .params = params_bytes(params),
                  .reads = {dw, codes},
                  .writes = out.writes()});
}

Var dequantize_affine(const Var& codes, const Var& scales, const Var& biases, AffineParams params,
                      DType dtype) {
  const char* op = "dequantize_affine";
  Tape& tape = common_tape(op, {codes, scales, biases});
  const Shape shape = dequantized_shape(op, codes.value(), scales.value(), biases.value(), params);
  const Buffer w = tape.alloc(dtype, shape);
  dequantize_affine_forward(tape.encoder(), codes.value(), scales.value(), biases.value(), w, params);
  return tape.record(op, {codes, scales, biases}, w, [packed = codes.value(), params](Backward& b) {
    const auto dscales = b.grad(1), dbiases = b.grad(2);
    dequantize_affine_backward(b.encoder(), b.dy(), packed, dscales, dbiases, params);
  });
}

}  // namespace mixtape
