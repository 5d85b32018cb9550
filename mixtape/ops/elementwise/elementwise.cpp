#include "mixtape/ops/elementwise/elementwise.h"

#include <algorithm>
#include <string>

#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

#define MIXTAPE_NAME(name) #name,
constexpr const char* kUnaryNames[] = {MIXTAPE_UNARY_OPS(MIXTAPE_NAME)};
constexpr const char* kBinaryNames[] = {MIXTAPE_BINARY_OPS(MIXTAPE_NAME)};
#undef MIXTAPE_NAME

bool is_suffix(const Shape& part, const Shape& whole) {
  return part.rank() <= whole.rank() &&
         std::equal(part.dims().rbegin(), part.dims().rend(), whole.dims().rbegin());
}

void check_binary(const char* op, const Buffer& a, const Buffer& b) {
  check_values(op, "a", a);
  check_values(op, "b", b);
  require(a.dtype() == b.dtype(), op, ": b is ", b, ", expected ", a.dtype(), " like a");
  require(is_suffix(a.shape(), b.shape()) || is_suffix(b.shape(), a.shape()), op, ": a is ", a, ", b is ", b,
          ", expected equal shapes, or one the end of the other");
}

// dx is dy's shape or a suffix of it; so is the other operand, but one of the two is dy's.
void encode_backward(CommandEncoder& encoder, const std::string& op, const Buffer& self, const Buffer& other,
                     const Buffer& dy, const Buffer& dx, Accumulate accumulate) {
  const char* what = op.c_str();
  check_values(what, "dy", dy);
  check_not_empty(what, "dy", dy);
  check_values(what, "dx", dx);
  require(dx.dtype() == dy.dtype() && is_suffix(dx.shape(), dy.shape()), what, ": dx is ", dx, ", expected ",
          dy, " like dy, or the end of that shape");
  check_values(what, "an operand", self);
  check_values(what, "an operand", other);
  const bool is_summed = dx.shape() != dy.shape();
  for (const Buffer& read : {dy, self, other}) {
    if (is_summed) check_no_overlap(what, "dx", dx, "an input", read);
  }
  require(is_summed ? other.shape() == dy.shape() : is_suffix(other.shape(), dy.shape()), what, ": other is ",
          other, " with dx ", dx, ", expected the shape of dy ", dy);
  require(other.dtype() == dy.dtype() && self.dtype() == dy.dtype(), what, ": operands are ", self, " and ",
          other, ", expected ", dy.dtype(), " like dy");
  const std::int64_t cols = dx.numel();
  const BinaryBackwardParams params{dy.numel() / cols, cols, other.numel(),
                                    static_cast<std::uint32_t>(accumulate)};
  encoder.encode({.kernel = str(op, is_summed ? "_sum_" : "_", dy.dtype()),
                  .params = params_bytes(params),
                  .reads = {dy, self, other},
                  .writes = {dx}});
}

Var unary(Unary op, const Var& x, float factor, const char* label) {
  Tape& tape = common_tape(label, {x});
  check_values(label, "x", x.value());
  if (x.value().numel() == 0) return tape.record_empty(label, {x}, x.dtype(), x.shape());
  const Buffer y = tape.alloc(x.dtype(), x.shape());
  unary_forward(tape.encoder(), op, x.value(), y, factor);
  const Buffer saved = op == Unary::scale ? Buffer() : saves_output(op) ? y : x.value();
  return tape.record(label, {x}, y, [op, saved, factor](Backward& b) {
    const auto [dx, accumulate] = b.grad(0);
    unary_backward(b.encoder(), op, saved ? saved : b.dy(), b.dy(), dx, accumulate, factor);
  });
}
Var unary(Unary op, const Var& x) { return unary(op, x, 1.0f, name(op)); }

Var binary(Binary op, const Var& a, const Var& b, BackwardFn rule) {
  Tape& tape = common_tape(name(op), {a, b});
  check_binary(name(op), a.value(), b.value());
  const Shape& shape = a.shape().rank() >= b.shape().rank() ? a.shape() : b.shape();
  if (shape.numel() == 0) return tape.record_empty(name(op), {a, b}, a.dtype(), shape);
  const Buffer y = tape.alloc(a.dtype(), shape);
  binary_forward(tape.encoder(), op, a.value(), b.value(), y);
  return tape.record(name(op), {a, b}, y, std::move(rule));
}

// The gradient of a term of a sum: dy itself where nothing was broadcast.
void term_backward(Backward& b, std::size_t input, const Shape& shape, bool negate) {
  if (!b.wants(input)) return;
  if (!negate && shape == b.dy().shape()) return b.pass(input, b.dy());
  const auto [dx, accumulate] = b.grad(input);
  if (shape == b.dy().shape()) {
    unary_backward(b.encoder(), Unary::scale, b.dy(), b.dy(), dx, accumulate, -1.0f);
  } else {
    sum_leading(b.encoder(), b.dy(), dx, negate, accumulate);
  }
}

}  // namespace

const char* name(Unary op) { return kUnaryNames[static_cast<std::size_t>(op)]; }
const char* name(Binary op) { return kBinaryNames[static_cast<std::size_t>(op)]; }

bool saves_output(Unary op) {
  return op == Unary::exp || op == Unary::sqrt || op == Unary::rsqrt || op == Unary::sigmoid ||
         op == Unary::tanh || op == Unary::softcap;
}

void unary_forward(CommandEncoder& encoder, Unary op, const Buffer& x, const Buffer& y, float factor) {
  check_values(name(op), "x", x);
  check_not_empty(name(op), "x", x);
  check_like(name(op), "y", y, "x", x);
  require(op != Unary::softcap || factor > 0.0f, "softcap: cap is ", factor, ", expected more than 0");
  encoder.encode({.kernel = str(name(op), "_forward_", x.dtype()),
                  .params = params_bytes(UnaryParams{x.numel(), factor, 0}),
                  .reads = {x},
                  .writes = {y}});
}

void unary_backward(CommandEncoder& encoder, Unary op, const Buffer& saved, const Buffer& dy,
                    const Buffer& dx, Accumulate accumulate, float factor) {
  const std::string what = str(name(op), "_backward");
  const char* saved_name = saves_output(op) ? "y" : "x";
  check_values(what.c_str(), saved_name, saved);
  check_not_empty(what.c_str(), saved_name, saved);
  check_like(what.c_str(), "dy", dy, saved_name, saved);
  check_like(what.c_str(), "dx", dx, saved_name, saved);
  require(op != Unary::softcap || factor > 0.0f, what, ": cap is ", factor, ", expected more than 0");
  const UnaryParams params{dy.numel(), factor, static_cast<std::uint32_t>(accumulate)};
  encoder.encode({.kernel = str(what, "_", dy.dtype()),
                  .params = params_bytes(params),
                  .reads = {saved, dy},
                  .writes = {dx}});
}

void binary_forward(CommandEncoder& encoder, Binary op, const Buffer& a, const Buffer& b, const Buffer& y) {
  check_binary(name(op), a, b);
  const bool a_is_larger = a.shape().rank() >= b.shape().rank();
  check_not_empty(name(op), a_is_larger ? "a" : "b", a_is_larger ? a : b);
  check_like(name(op), "y", y, a_is_larger ? "a" : "b", a_is_larger ? a : b);
  encoder.encode({.kernel = str(name(op), "_forward_", a.dtype()),
                  .params = params_bytes(BinaryParams{y.numel(), a.numel(), b.numel()}),
                  .reads = {a, b},
                  .writes = {y}});
}

void mul_backward(CommandEncoder& encoder, const Buffer& other, const Buffer& dy, const Buffer& dx,
                  Accumulate accumulate) {
  encode_backward(encoder, "mul_backward", dy, other, dy, dx, accumulate);
}

void div_backward_a(CommandEncoder& encoder, const Buffer& b, const Buffer& dy, const Buffer& da,
                    Accumulate accumulate) {
  encode_backward(encoder, "div_backward_a", dy, b, dy, da, accumulate);
}

void div_backward_b(CommandEncoder& encoder, const Buffer& a, const Buffer& b, const Buffer& dy,
                    const Buffer& db, Accumulate accumulate) {
  check_like("div_backward_b", "db", db, "b", b);
  encode_backward(encoder, "div_backward_b", b, a, dy, db, accumulate);
}

void sum_leading(CommandEncoder& encoder, const Buffer& dy, const Buffer& dx, bool negate,
                 Accumulate accumulate) {
  require(dx.shape() != dy.shape(), "sum_leading: dx is ", dx, ", expected fewer dimensions than dy ", dy);
  encode_backward(encoder, negate ? "sub_backward" : "add_backward", dy, dy, dy, dx, accumulate);
}

Var neg(const Var& x) { return unary(Unary::scale, x, -1.0f, "neg"); }
Var scale(const Var& x, float factor) { return unary(Unary::scale, x, factor, "scale"); }
Var exp(const Var& x) { return unary(Unary::exp, x); }
Var log(const Var& x) { return unary(Unary::log, x); }
Var sqrt(const Var& x) { return unary(Unary::sqrt, x); }
Var rsqrt(const Var& x) { return unary(Unary::rsqrt, x); }
Var sigmoid(const Var& x) { return unary(Unary::sigmoid, x); }
Var tanh(const Var& x) { return unary(Unary::tanh, x); }
Var gelu(const Var& x) { return unary(Unary::gelu, x); }
Var silu(const Var& x) { return unary(Unary::silu, x); }
Var softcap(const Var& x, float cap) { return unary(Unary::softcap, x, cap, "softcap"); }

Var add(const Var& a, const Var& b) {
  return binary(Binary::add, a, b, [shape_a = a.shape(), shape_b = b.shape()](Backward& back) {
    term_backward(back, 0, shape_a, false);
    term_backward(back, 1, shape_b, false);
  });
}

Var sub(const Var& a, const Var& b) {
  return binary(Binary::sub, a, b, [shape_a = a.shape(), shape_b = b.shape()](Backward& back) {
    term_backward(back, 0, shape_a, false);
    term_backward(back, 1, shape_b, true);
  });
}

// Each operand is kept only if the other one's gradient is wanted.
Var mul(const Var& a, const Var& b) {
  const Buffer kept_a = b.requires_grad() ? a.value() : Buffer();
  const Buffer kept_b = a.requires_grad() ? b.value() : Buffer();
  return binary(Binary::mul, a, b, [kept_a, kept_b](Backward& back) {
    if (const auto [da, accumulate] = back.grad(0); da)
      mul_backward(back.encoder(), kept_b, back.dy(), da, accumulate);
    if (const auto [db, accumulate] = back.grad(1); db)
      mul_backward(back.encoder(), kept_a, back.dy(), db, accumulate);
  });
}

Var div(const Var& a, const Var& b) {
  const Buffer kept_a = b.requires_grad() ? a.value() : Buffer();
  return binary(Binary::div, a, b, [kept_a, kept_b = b.value()](Backward& back) {
    if (const auto [da, accumulate] = back.grad(0); da)
      div_backward_a(back.encoder(), kept_b, back.dy(), da, accumulate);
    if (const auto [db, accumulate] = back.grad(1); db)
      div_backward_b(back.encoder(), kept_a, kept_b, back.dy(), db, accumulate);
  });
}

}  // namespace mixtape
