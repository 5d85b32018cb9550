#include "mixtape/ops/fit_affine/fit_affine.h"

#include <algorithm>

#include "mixtape/ops/fit_affine/fit_affine_params.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {

std::int64_t importance_rows(const char* op, const Buffer& w, const Buffer& importance) {
  const Shape& shape = w.shape();
  if (!importance || importance.shape().rank() != 2) {
    if (importance) check_is(op, "importance", importance, DType::f32, {shape.cols()});
    return 1;
  }
  require(shape.rank() == 3, op, ": w is ", w, ", expected f32[E,N,K] for importance ", importance);
  check_is(op, "importance", importance, DType::f32, {shape[0], shape[2]});
  return shape[0];
}

void refuse_importance(std::int64_t position, float value) {
  fail(ErrorCode::invalid_argument, "fit_affine: importance at position ", position, " is ", value,
       ", expected finite values of at least 0");
}

void refuse_overflow(std::int64_t row, std::int64_t col, DType dtype) {
  fail(ErrorCode::invalid_argument, "fit_affine: scale or bias of the group at row ", row, ", column ", col,
       " overflows ", dtype);
}

void fit_affine_forward(CommandEncoder& encoder, const Buffer& w, const Buffer& importance,
                        const QuantizedWeight& q) {
  const char* op = "fit_affine";
  const Buffer &codes = q.codes, &scales = q.scales, &biases = q.biases;
  const AffineParams affine = q.format;
  affine.check(op);
  require(affine.group_size >= 32, op, ": group size is ", affine.group_size, ", expected 32, 64 or 128");
  require(w && w.dtype() == DType::f32 && w.shape().rank() > 0, op, ": w is ", w,
          ", expected f32 of rank 1 or more");
  affine.check_cols(op, w.shape().cols());
  const std::int64_t experts = importance_rows(op, w, importance);
  check_is(op, "codes", codes, DType::u32, packed_shape(w.shape(), affine));
  check_values(op, "scales", scales);
  check_is(op, "scales", scales, scales.dtype(), scales_shape(w.shape(), affine));
  check_like(op, "biases", biases, "scales", scales);
  check_no_overlap(op, "biases", biases, "scales", scales);
  check_no_overlap(op, "scales", scales, "w", w);
  check_no_overlap(op, "biases", biases, "w", w);
  Dispatch dispatch{
      .kernel = str("fit_affine_forward_", scales.dtype()),
      .params = params_bytes(FitAffineParams{
          experts, w.shape().rows() / std::max<std::int64_t>(experts, 1), w.shape().cols(), affine,
          importance ? 1u : 0u, fit_drop(affine.bits), static_cast<float>(0.75 * epsilon(scales.dtype()))}),
      .reads = {w},
      .writes = {codes, scales, biases}};
  if (importance) {
    check_no_overlap(op, "scales", scales, "importance", importance);
    check_no_overlap(op, "biases", biases, "importance", importance);
    dispatch.reads.push_back(importance);
  }
  encoder.encode(dispatch);
}

}  // namespace mixtape
