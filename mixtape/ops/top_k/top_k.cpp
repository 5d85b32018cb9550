#include "mixtape/ops/top_k/top_k.h"

#include "mixtape/ops/top_k/top_k_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

void check_k(const char* op, const char* argument, const Buffer& x, std::int64_t k) {
  check_values(op, argument, x);
  const std::int64_t cols = x.shape().cols();
  require(cols < std::int64_t{1} << 32, op, ": ", argument, " is ", x, ", expected fewer than 2^32 columns");
  require(1 <= k && k <= cols, op, ": k is ", k, ", expected 1 to the ", cols, " columns of ", argument);
}

}  // namespace

void top_k_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& values, const Buffer& indices) {
  check_values("top_k", "values", values);
  const std::int64_t k = values.shape().cols();
  check_k("top_k", "x", x, k);
  const Shape shape = x.shape().with(x.shape().rank() - 1, k);
  check_is("top_k", "values", values, x.dtype(), shape);
  check_is("top_k", "indices", indices, DType::u32, shape);
  check_no_overlap("top_k", "values", values, "x", x);
  encoder.encode({.kernel = str("top_k_forward_", x.dtype()),
                  .params = params_bytes(TopKParams{x.shape().rows(), x.shape().cols(), k, 0}),
                  .reads = {x},
                  .writes = {values, indices}});
}

void top_k_backward(CommandEncoder& encoder, const Buffer& indices, const Buffer& dvalues, const Buffer& dx,
                    Accumulate accumulate) {
  check_values("top_k_backward", "dvalues", dvalues);
  const std::int64_t k = dvalues.shape().cols();
  check_k("top_k_backward", "dx", dx, k);
  const Shape shape = dx.shape().with(dx.shape().rank() - 1, k);
  check_is("top_k_backward", "dvalues", dvalues, dx.dtype(), shape);
  check_is("top_k_backward", "indices", indices, DType::u32, shape);
  check_no_overlap("top_k_backward", "dx", dx, "dvalues", dvalues);
  const TopKParams params{dx.shape().rows(), dx.shape().cols(), k, static_cast<std::uint32_t>(accumulate)};
  encoder.encode({.kernel = str("top_k_backward_", dx.dtype()),
                  .params = params_bytes(params),
                  .reads = {indices, dvalues},
                  .writes = {dx}});
}

TopK top_k(const Var& x, std::int64_t k) {
  Tape& tape = common_tape("top_k", {x});
  check_k("top_k", "x", x.value(), k);
  const Shape shape = x.shape().with(x.shape().rank() - 1, k);
  const Buffer values = tape.alloc(x.dtype(), shape);
  const Buffer indices = tape.alloc(DType::u32, shape);
  top_k_forward(tape.encoder(), x.value(), values, indices);
  const Var output = tape.record("top_k", {x}, values, [indices](Backward& b) {
    const auto [dx, accumulate] = b.grad(0);
    top_k_backward(b.encoder(), indices, b.dy(), dx, accumulate);
  });
  return {output, indices};
}

}  // namespace mixtape
