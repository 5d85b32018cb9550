#include "mixtape/ops/gptq/gptq.h"

#include "mixtape/ops/gptq/gptq_params.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

void check_weight(const char* op, const Buffer& w, AffineParams format) {
  format.check(op);
  require(w && w.dtype() == DType::f32 && w.shape().rank() >= 2, op, ": w is ", w,
          ", expected f32 of rank 2 or more");
  format.check_cols(op, w.shape().cols());
}

// One factor for all rows of w, or one for each of its matrices.
void check_factor(const char* op, const Buffer& factor, const Shape& w) {
  const bool is_shared = factor && factor.shape().rank() == 2;
  const Shape wanted = is_shared ? Shape{w.cols(), w.cols()} : w.with(w.rank() - 2, w.cols());
  check_is(op, "factor", factor, DType::f32, wanted);
}

}  // namespace

void gptq_forward(CommandEncoder& encoder, const Buffer& w, const Buffer& factor, const QuantizedWeight& q) {
  const char* op = "gptq";
  const Buffer &codes = q.codes, &scales = q.scales, &biases = q.biases;
  const AffineParams format = q.format;
  check_weight(op, w, format);
  const Shape& shape = w.shape();
  check_factor(op, factor, shape);
  check_values(op, "scales", scales);
  check_is(op, "scales", scales, scales.dtype(), scales_shape(shape, format));
  check_like(op, "biases", biases, "scales", scales);
  check_is(op, "codes", codes, DType::u32, packed_shape(shape, format));
  const std::int64_t batch = factor.numel() / (shape.cols() * shape.cols());
  encoder.encode(
      {.kernel = str("gptq_forward_", scales.dtype()),
       .params = params_bytes(GptqParams{batch, batch > 0 ? shape.rows() / batch : 0, shape.cols(), format}),
       .reads = {w, factor, scales, biases},
       .writes = {codes}});
}

}  // namespace mixtape
