#include "mixtape/ops/elementwise/cast.h"

#include "mixtape/ops/elementwise/elementwise_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

void encode(CommandEncoder& encoder, const Buffer& from, const Buffer& to, Accumulate accumulate) {
  encoder.encode(
      {.kernel = str("cast_", from.dtype(), "_", to.dtype()),
       .params = params_bytes(UnaryParams{from.numel(), 1.0f, static_cast<std::uint32_t>(accumulate)}),
       .reads = {from},
       .writes = {to}});
}

void check(const char* op, const char* from_name, const Buffer& from, const char* to_name, const Buffer& to) {
  check_values(op, from_name, from);
  check_values(op, to_name, to);
  require(to.shape() == from.shape(), op, ": ", to_name, " is ", to, ", expected the shape of ", from_name,
          " ", from);
}

}  // namespace

void cast_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& y) {
  check("cast", "x", x, "y", y);
  encode(encoder, x, y, Accumulate::no);
}

void cast_backward(CommandEncoder& encoder, const Buffer& dy, const Buffer& dx, Accumulate accumulate) {
  check("cast_backward", "dy", dy, "dx", dx);
  encode(encoder, dy, dx, accumulate);
}

Var cast(const Var& x, DType dtype) {
  Tape& tape = common_tape("cast", {x});
  check_values("cast", "x", x.value());
  require(is_value(dtype), "cast: wanted dtype is ", dtype, ", expected f32, bf16 or f16");
  if (dtype == x.dtype()) return x;
  const Buffer y = tape.alloc(dtype, x.shape());
  cast_forward(tape.encoder(), x.value(), y);
  return tape.record("cast", {x}, y, [](Backward& b) {
    const auto [dx, accumulate] = b.grad(0);
    cast_backward(b.encoder(), b.dy(), dx, accumulate);
  });
}

}  // namespace mixtape
