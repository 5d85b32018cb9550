#include "mixtape/ops/elementwise/scale_rows.h"

#include "mixtape/ops/elementwise/scale_rows_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

void check_factors(const char* op, const char* argument, const Buffer& s, const Buffer& x) {
  require(x.shape().rank() > 1, op, ": x is ", x, ", expected rank 2 or more");
  std::vector<std::int64_t> rows = x.shape().dims();
  rows.pop_back();
  check_is(op, argument, s, x.dtype(), Shape(rows));
}

void encode(CommandEncoder& encoder, const char* kernel, const Buffer& x, const Buffer& s, const Buffer& y,
            Accumulate accumulate) {
  const ScaleRowsParams params{x.shape().rows(), x.shape().cols(), static_cast<std::uint32_t>(accumulate)};
  encoder.encode({.kernel = str(kernel, x.dtype()),
                  .params = params_bytes(params),
                  .reads = {x, s},
                  .writes = {y},
                  .is_empty = x.numel() == 0,
                  .adds = accumulate == Accumulate::yes});
}

}  // namespace

void scale_rows_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& s, const Buffer& y) {
  check_values("scale_rows", "x", x);
  check_factors("scale_rows", "s", s, x);
  check_like("scale_rows", "y", y, "x", x);
  encode(encoder, "scale_rows_forward_", x, s, y, Accumulate::no);
}

void scale_rows_backward_x(CommandEncoder& encoder, const Buffer& s, const Buffer& dy, const Buffer& dx,
                           Accumulate accumulate) {
  check_values("scale_rows_backward", "dy", dy);
  check_factors("scale_rows_backward", "s", s, dy);
  check_like("scale_rows_backward", "dx", dx, "dy", dy);
  encode(encoder, "scale_rows_forward_", dy, s, dx, accumulate);
}

void scale_rows_backward_s(CommandEncoder& encoder, const Buffer& x, const Buffer& dy, const Buffer& ds,
                           Accumulate accumulate) {
  check_values("scale_rows_backward", "x", x);
  check_like("scale_rows_backward", "dy", dy, "x", x);
  check_factors("scale_rows_backward", "ds", ds, x);
  encode(encoder, "scale_rows_backward_s_", x, dy, ds, accumulate);
}

Var scale_rows(const Var& x, const Var& s) {
  Tape& tape = common_tape("scale_rows", {x, s});
  check_values("scale_rows", "x", x.value());
  check_factors("scale_rows", "s", s.value(), x.value());
  const Buffer y = tape.alloc(x.dtype(), x.shape());
  scale_rows_forward(tape.encoder(), x.value(), s.value(), y);
  const Buffer kept_x = s.requires_grad() ? x.value() : Buffer();
  const Buffer kept_s = x.requires_grad() ? s.value() : Buffer();
  return tape.record("scale_rows", {x, s}, y, [kept_x, kept_s](Backward& b) {
    if (const auto [dx, accumulate] = b.grad(0); dx)
      scale_rows_backward_x(b.encoder(), kept_s, b.dy(), dx, accumulate);
    if (const auto [ds, accumulate] = b.grad(1); ds)
      scale_rows_backward_s(b.encoder(), kept_x, b.dy(), ds, accumulate);
  });
}

}  // namespace mixtape
