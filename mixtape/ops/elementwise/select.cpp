#include "mixtape/ops/elementwise/select.h"

#include <cmath>

#include "mixtape/ops/elementwise/select_params.h"
#include "mixtape/ops/layout/layout.h"
#include "mixtape/ops/reduce/axes.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

std::int64_t step(const Buffer& operand) { return operand.numel() == 1 ? 0 : 1; }

void check_operand(const char* op, const char* argument, const Buffer& found, DType dtype, const Shape& y) {
  require(found && found.dtype() == dtype && (found.shape() == y || found.shape() == Shape{1}), op, ": ",
          argument, " is ", found, ", expected ", dtype, y, " or one element");
}

void check_output(const char* op, const char* argument, const Buffer& y) {
  require(y && y.shape().rank() > 0, op, ": ", argument, " is ", y, ", expected rank 1 or more");
}

void check_rank(const char* op, const char* argument, const Var& v) {
  require(v.shape().rank() > 0, op, ": ", argument, " is ", v.value(), ", expected rank 1 or more");
}

// A constant of one element of this dtype.
Var constant(const char* op, Tape& tape, DType dtype, double c) {
  const Buffer one = tape.alloc(dtype, {1});
  const auto put = [&](auto least, auto most) {
    using T = decltype(least);
    require(c == std::floor(c) && c >= static_cast<double>(least) && c <= static_cast<double>(most), op,
            ": c is ", c, ", expected a whole number of ", dtype);
    one.copy_from<T>(std::vector<T>{static_cast<T>(c)});
  };
  if (is_value(dtype)) {
    tape.encoder().fill(one, static_cast<float>(c));
  } else if (dtype == DType::i32) {
    put(INT32_MIN, INT32_MAX);
  } else if (dtype == DType::u32) {
    put(std::uint32_t{0}, UINT32_MAX);
  } else if (dtype == DType::u16) {
    put(std::uint16_t{0}, std::uint16_t{UINT16_MAX});
  } else {
    put(std::uint8_t{0}, std::uint8_t{UINT8_MAX});
  }
  return tape.constant(one);
}

// As the kernels take it: like y, or one element that needs no gradient.
Var operand(const Var& v, const Shape& y) {
  if (v.value().numel() == 1 && !v.requires_grad()) return v.shape() == y ? v : reshape(v, Shape{1});
  return expand(v, y);
}

}  // namespace

const char* name(Comparison op) {
  constexpr const char* kNames[] = {"less", "less_equal", "greater", "greater_equal", "equal", "not_equal"};
  return kNames[static_cast<std::size_t>(op)];
}

void compare_forward(CommandEncoder& encoder, Comparison op, const Buffer& a, const Buffer& b,
                     const Buffer& y) {
  check_output(name(op), "y", y);
  check_is(name(op), "y", y, DType::u8, y.shape());
  require(static_cast<bool>(a), name(op), ": a is null");
  check_operand(name(op), "a", a, a.dtype(), y.shape());
  check_operand(name(op), "b", b, a.dtype(), y.shape());
  const bool negated = op == Comparison::not_equal;
  const bool has_equal =
      op == Comparison::less_equal || op == Comparison::greater_equal || op == Comparison::equal;
  const bool has_less = op == Comparison::less || op == Comparison::less_equal || negated;
  const bool has_greater = op == Comparison::greater || op == Comparison::greater_equal || negated;
  encoder.encode({.kernel = str("compare_forward_", a.dtype()),
                  .params = params_bytes(
                      CompareParams{y.numel(), step(a), step(b), has_less, has_equal, has_greater, negated}),
                  .reads = {a, b},
                  .writes = {y}});
}

void where_forward(CommandEncoder& encoder, const Buffer& mask, const Buffer& a, const Buffer& b,
                   const Buffer& y) {
  check_output("where", "y", y);
  check_operand("where", "mask", mask, DType::u8, y.shape());
  check_operand("where", "a", a, y.dtype(), y.shape());
  check_operand("where", "b", b, y.dtype(), y.shape());
  encoder.encode({.kernel = str("where_forward_", size_of(y.dtype()), "_bytes"),
                  .params = params_bytes(WhereParams{y.numel(), step(mask), step(a), step(b)}),
                  .reads = {mask, a, b},
                  .writes = {y}});
}

void where_backward(CommandEncoder& encoder, const Buffer& mask, bool is_a, const Buffer& dy,
                    const Buffer& dx, Accumulate accumulate) {
  check_values("where_backward", "dy", dy);
  check_operand("where_backward", "mask", mask, DType::u8, dy.shape());
  check_like("where_backward", "dx", dx, "dy", dy);
  const WhereBackwardParams params{dy.numel(), step(mask), is_a, static_cast<std::uint32_t>(accumulate)};
  encoder.encode({.kernel = str("where_backward_", dy.dtype()),
                  .params = params_bytes(params),
                  .reads = {mask, dy},
                  .writes = {dx}});
}

Var compare(Comparison op, const Var& a, const Var& b) {
  Tape& tape = common_tape(name(op), {a, b});
  check_rank(name(op), "a", a);
  check_rank(name(op), "b", b);
  require(a.dtype() == b.dtype(), name(op), ": b is ", b.value(), ", expected ", a.dtype(), " like a");
  const Shape shape = broadcast_shape(name(op), a.shape(), b.shape());
  const Buffer y = tape.alloc(DType::u8, shape);
  compare_forward(tape.encoder(), op, operand(a.detach(), shape).value(), operand(b.detach(), shape).value(),
                  y);
  return tape.constant(y);
}

Var compare(Comparison op, const Var& x, double c) {
  Tape& tape = common_tape(name(op), {x});
  return compare(op, x, constant(name(op), tape, x.dtype(), c));
}

Var where(const Var& mask, const Var& a, const Var& b) {
  Tape& tape = common_tape("where", {mask, a, b});
  check_rank("where", "mask", mask);
  check_rank("where", "a", a);
  check_rank("where", "b", b);
  require(mask.dtype() == DType::u8, "where: mask is ", mask.value(), ", expected u8, as comparisons give");
  require(a.dtype() == b.dtype(), "where: b is ", b.value(), ", expected ", a.dtype(), " like a");
  const Shape shape = broadcast_shape("where", broadcast_shape("where", a.shape(), b.shape()), mask.shape());
  const Buffer m = operand(mask, shape).value(), y = tape.alloc(a.dtype(), shape);
  const Var chosen = operand(a, shape), other = operand(b, shape);
  where_forward(tape.encoder(), m, chosen.value(), other.value(), y);
  return tape.record("where", {chosen, other}, y, [m](Backward& back) {
    for (const std::size_t input : {0, 1}) {
      if (!back.wants(input)) continue;
      const auto [dx, accumulate] = back.grad(input);
      where_backward(back.encoder(), m, input == 0, back.dy(), dx, accumulate);
    }
  });
}

Var where(const Var& mask, const Var& a, double b) {
  return where(mask, a, constant("where", common_tape("where", {mask, a}), a.dtype(), b));
}
Var where(const Var& mask, double a, const Var& b) {
  return where(mask, constant("where", common_tape("where", {mask, b}), b.dtype(), a), b);
}

}  // namespace mixtape
