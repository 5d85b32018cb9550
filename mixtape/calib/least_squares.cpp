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

QuantizedWeight fit_groups(const FitInput& in, const Buffer& importance) {
  const Device& device = in.w.device();
  QuantizedWeight q = alloc_quantized(device, in.w.shape(), *in.module.stored, in.storage);
  CommandEncoder encoder(device);
  fit_affine_forward(encoder, in.w, importance, q);
  q.scales = as_f32(encoder, q.scales);
  q.biases = as_f32(encoder, q.biases);
  encoder.commit_and_wait();
  return q;
}

QuantizedWeight fit(const FitInput& in, bool weighted) {
  const Buffer importance = weighted && in.inputs ? in.inputs->mean_squares : Buffer();
  const WeightFormat& format = *in.module.stored;
  try {
    return format.is_blocks() ? quantize_blocks(in.w, importance, format.block, BlockFit::search)
                              : fit_groups(in, importance);
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
