#include "mixtape/ops/latent_codes/latent_codes.h"

#include "mixtape/autograd/gradients.h"
#include "mixtape/ops/latent_codes/latent_codes_params.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

void check_latent(const char* op, const Buffer& u, AffineParams affine) {
  affine.check(op);
  require(u && u.dtype() == DType::f32 && u.shape().rank() > 0, op, ": u is ", u,
          ", expected f32 of rank 1 or more");
  affine.check_cols(op, u.shape().cols());
}

void check_scales(const char* op, const char* argument, const Buffer& found, const Buffer& u,
                  AffineParams affine) {
  check_is(op, argument, found, DType::f32, scales_shape(u.shape(), affine));
}

void check_weight(const char* op, const char* argument, const Buffer& found, const Buffer& u) {
  check_values(op, argument, found);
  check_is(op, argument, found, found.dtype(), u.shape());
}

LatentCodesParams params_of(const Buffer& u, AffineParams affine) {
  return {u.numel(), u.shape().cols(), affine, 0, 0};
}

}  // namespace

void latent_codes_forward(CommandEncoder& encoder, const Buffer& u, const Buffer& scales,
                          const Buffer& biases, const Buffer& w, AffineParams affine) {
  const char* op = "latent_codes";
  check_latent(op, u, affine);
  check_scales(op, "scales", scales, u, affine);
  check_scales(op, "biases", biases, u, affine);
  check_weight(op, "w", w, u);
  check_no_overlap(op, "w", w, "u", u);
  encoder.encode({.kernel = str("latent_codes_forward_", w.dtype()),
                  .params = params_bytes(params_of(u, affine)),
                  .reads = {u, scales, biases},
                  .writes = {w}});
}

void latent_codes_backward(CommandEncoder& encoder, const Buffer& dw, const Buffer& u, const Buffer& scales,
                           const Backward::Target& du, const Backward::Target& dscales,
                           const Backward::Target& dbiases, AffineParams affine) {
  const char* op = "latent_codes_backward";
  check_latent(op, u, affine);
  check_scales(op, "scales", scales, u, affine);
  check_weight(op, "dw", dw, u);
  Gradients out(op, encoder);
  out.add("du", du, "u", u, {u, scales});
  out.add("dscales", dscales, "scales", scales, {dw, u, scales});
  out.add("dbiases", dbiases, "scales", scales, {dw, u, scales});
  if (out.writes().empty()) return;
  LatentCodesParams params = params_of(u, affine);
  params.wanted = out.wanted();
  params.accumulate = out.accumulate();
  encoder.encode({.kernel = str("latent_codes_backward_", dw.dtype()),
                  .params = params_bytes(params),
                  .reads = {dw, u, scales},
                  .writes = out.writes(),
                  .adds = out.adds()});
}

void pack_codes_forward(CommandEncoder& encoder, const Buffer& u, const Buffer& codes, AffineParams affine) {
  const char* op = "pack_codes";
  check_latent(op, u, affine);
  check_is(op, "codes", codes, DType::u32, packed_shape(u.shape(), affine));
  encoder.encode({.kernel = "pack_codes_forward",
                  .params = params_bytes(params_of(u, affine)),
                  .reads = {u},
                  .writes = {codes}});
}

Var latent_codes(const Var& u, const Var& scales, const Var& biases, AffineParams affine, DType dtype) {
  const char* op = "latent_codes";
  Tape& tape = common_tape(op, {u, scales, biases});
  check_latent(op, u.value(), affine);
  check_scales(op, "scales", scales.value(), u.value(), affine);
  check_scales(op, "biases", biases.value(), u.value(), affine);
  require(is_value(dtype), op, ": dtype is ", dtype, ", expected f32, bf16 or f16");
  const Buffer w = tape.alloc(dtype, u.shape());
  latent_codes_forward(tape.encoder(), u.value(), scales.value(), biases.value(), w, affine);
  return tape.record(op, {u, scales, biases}, w,
                     [u = u.value(), scales = scales.value(), affine](Backward& b) {
                       const auto du = b.grad(0), dscales = b.grad(1), dbiases = b.grad(2);
                       latent_codes_backward(b.encoder(), b.dy(), u, scales, du, dscales, dbiases, affine);
                     });
}

}  // namespace mixtape
