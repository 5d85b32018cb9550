#include "mixtape/calib/least_squares.h"

#include "mixtape/ops/elementwise/cast.h"
#include "mixtape/ops/fit_affine/fit_affine.h"
#include "mixtape/ops/quantize/quantize.h"

namespace mixtape {
namespace {

Buffer as_f32(CommandEncoder& encoder, const Buffer& b) {
  if (b.dtype() == DType::f32) return b;
  const Buffer wide = b.device().alloc_uninitialized(DType::f32, b.shape());
  cast_forward(encoder, b, wide);
  return wide;
}

QuantizedMatrix fit(const FitInput& in, bool weighted) {
  const AffineParams format = *in.module.stored;
  const Device& device = in.w.device();
  const Shape groups = scales_shape(in.w.shape(), format);
  const Buffer codes = device.alloc_uninitialized(DType::u32, packed_shape(in.w.shape(), format));
  const Buffer scales = device.alloc_uninitialized(in.storage, groups);
  const Buffer biases = device.alloc_uninitialized(in.storage, groups);
  const Buffer importance = weighted && in.inputs ? in.inputs->mean_squares : Buffer();
  try {
    CommandEncoder encoder(device);
    fit_affine_forward(encoder, in.w, importance, codes, scales, biases, format);
    const QuantizedMatrix fitted{codes, as_f32(encoder, scales), as_f32(encoder, biases), format};
    encoder.commit_and_wait();
    return fitted;
  } catch (const Error& error) {
    fail(error.code(), "'", in.module.source, "': ", error.what());
  }
}

}  // namespace

Method least_squares(const LeastSquaresOptions& options) {
  return {.name = options.weighted ? "least squares, weighted" : "least squares",
          .fit = [options](const FitInput& in) { return fit(in, options.weighted); },
          .statistics = options.weighted ? Statistics::importance : Statistics::none};
}

}  // namespace mixtape
