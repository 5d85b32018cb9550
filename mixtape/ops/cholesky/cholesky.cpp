#include "mixtape/ops/cholesky/cholesky.h"

#include "mixtape/ops/cholesky/cholesky_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

// Without the last two dimensions.
Shape leading(const Shape& h) {
  const Shape shape(std::vector<std::int64_t>(h.dims().begin(), h.dims().end() - 2));
  return shape.rank() == 0 ? Shape{1} : shape;
}

}  // namespace

void cholesky_forward(CommandEncoder& encoder, const Buffer& h, const Buffer& factor,
                      const Buffer& min_pivot) {
  const char* op = "cholesky";
  require(h && h.dtype() == DType::f32 && h.shape().rank() >= 2, op, ": h is ", h,
          ", expected f32 of rank 2 or more");
  const std::int64_t size = h.shape().cols();
  require(size > 0 && h.shape()[h.shape().rank() - 2] == size, op, ": h is ", h,
          ", expected square matrices of 1 row or more");
  check_like(op, "factor", factor, "h", h);
  check_is(op, "min_pivot", min_pivot, DType::f32, leading(h.shape()));
  check_no_overlap(op, "min_pivot", min_pivot, "h", h);
  encoder.encode({.kernel = "cholesky_forward_f32",
                  .params = params_bytes(CholeskyParams{h.numel() / (size * size), size}),
                  .reads = {h},
                  .writes = {factor, min_pivot}});
}

}  // namespace mixtape
