#include "mixtape/ops/quantize/quantize.h"

#include "mixtape/ops/quantize/quantize_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

QuantizeParams make_params(const Shape& w, AffineParams affine) {
  return {w.rows(), w.cols(), affine, Rounding::gpu, 1, 1, 0, 0};
}

void check_codes(const char* op, const Buffer& codes) {
  require(codes && codes.dtype() == DType::u32 && codes.shape().rank() > 0, op, ": codes is ", codes,
          ", expected u32 of rank 1 or more");
  check_not_empty(op, "codes", codes);
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
  check_not_empty(op, "scales", scales);
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
  check_not_empty(op, "w", w);
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
                                const Buffer& dscales, const Buffer& dbiases, AffineParams affine,
                                Accumulate accumulate_scales, Accumulate accumulate_biases) {
  const char* op = "dequantize_affine_backward";
  affine.check(op);
  check_values(op, "dw", dw);
  check_not_empty(op, "dw", dw);
  affine.check_cols(op, dw.shape().cols());
  check_is(op, "codes", codes, DType::u32, packed_shape(dw.shape(), affine));
  require(dscales || dbiases, op, ": dscales and dbiases are null, expected at least one");
  const Buffer& wanted = dscales ? dscales : dbiases;
  check_values(op, dscales ? "dscales" : "dbiases", wanted);
  check_is(op, dscales ? "dscales" : "dbiases", wanted, wanted.dtype(), scales_shape(dw.shape(), affine));
  if (dscales && dbiases) check_like(op, "dbiases", dbiases, "dscales", dscales);
  check_gradients_apart(op, "dscales", dscales, "dbiases", dbiases, accumulate_biases == Accumulate::yes);
  QuantizeParams params = make_params(dw.shape(), affine);
  params.wants_scales = dscales ? 1 : 0;
  params.wants_biases = dbiases ? 1 : 0;
  params.accumulate_scales = static_cast<std::uint32_t>(accumulate_scales);
  params.accumulate_biases = static_cast<std::uint32_t>(accumulate_biases);
  Dispatch dispatch{.kernel = str("dequantize_affine_backward_", dw.dtype(), "_", wanted.dtype()),
                    .params = params_bytes(params),
                    .reads = {dw, codes},
                    .writes = {}};
  if (dscales) dispatch.writes.push_back(dscales);
  if (dbiases) dispatch.writes.push_back(dbiases);
  encoder.encode(dispatch);
}

Var dequantize_affine(const Var& codes, const Var& scales, const Var& biases, AffineParams params,
                      DType dtype) {
  const char* op = "dequantize_affine";
  Tape& tape = common_tape(op, {codes, scales, biases});
  const Shape shape = dequantized_shape(op, codes.value(), scales.value(), biases.value(), params);
  const Buffer w = tape.alloc(dtype, shape);
  dequantize_affine_forward(tape.encoder(), codes.value(), scales.value(), biases.value(), w, params);
  return tape.record(op, {codes, scales, biases}, w, [packed = codes.value(), params](Backward& b) {
    const auto [dscales, accumulate_scales] = b.grad(1);
    const auto [dbiases, accumulate_biases] = b.grad(2);
    dequantize_affine_backward(b.encoder(), b.dy(), packed, dscales, dbiases, params, accumulate_scales,
                               accumulate_biases);
  });
}

}  // namespace mixtape
