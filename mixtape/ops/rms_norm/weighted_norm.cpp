#include "mixtape/ops/rms_norm/weighted_norm.h"

#include <cmath>

#include "mixtape/runtime/checks.h"

namespace mixtape {

void check_norm_weight(const char* op, const Buffer& x, const Buffer& w) {
  const Shape row{x.shape().cols()};
  require(w && (w.dtype() == x.dtype() || w.dtype() == DType::f32) && w.shape() == row, op, ": w is ", w,
          ", expected ", x.dtype(), " or f32 ", row, " for x ", x);
}

void check_eps(const char* op, float eps) {
  require(std::isfinite(eps) && eps > 0.0f, op, ": eps is ", eps, ", expected a positive number");
}

std::string weighted_kernel(const char* stem, const Buffer& x, const Buffer& w) {
  return str(stem, x.dtype(), w.dtype() == x.dtype() ? "" : "_w_f32");
}

RmsNormParams norm_params(const CommandEncoder& encoder, std::int64_t rows, std::int64_t cols) {
  RmsNormParams params{};
  params.rows = rows;
  params.cols = cols;
  params.row_block = encoder.device().caps().rows_per_block(rows);
  return params;
}

Buffer alloc_partials(const CommandEncoder& encoder, const RmsNormParams& params) {
  const std::int64_t blocks = (params.rows + params.row_block - 1) / params.row_block;
  return encoder.device().alloc_uninitialized(DType::f32, {blocks, params.cols});
}

void add_partials(CommandEncoder& encoder, RmsNormParams params, const Buffer& partials,
                  const Backward::Target& dw) {
  params.accumulate = dw.accumulate == Accumulate::yes ? params.dw : 0u;
  encoder.encode({.kernel = str("rms_norm_backward_weight_", dw.buffer.dtype()),
                  .params = params_bytes(params),
                  .reads = {partials},
                  .writes = {dw.buffer},
                  .is_empty = params.rows == 0,
                  .adds = dw.accumulate == Accumulate::yes});
}

}  // namespace mixtape
