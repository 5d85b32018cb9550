#include "mixtape/ops/elementwise/elementwise.h"

#include <algorithm>
#include <string>

#include "mixtape/ops/layout/layout.h"
#include "mixtape/ops/reduce/axes.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

#define MIXTAPE_NAME(name) #name,
constexpr const char* kUnaryNames[] = {MIXTAPE_UNARY_OPS(MIXTAPE_NAME)};
constexpr const char* kBinaryNames[] = {MIXTAPE_BINARY_OPS(MIXTAPE_NAME)};
#undef MIXTAPE_NAME

// Whether `part` repeats over leading dimensions of `whole`: its sizes, but for ones in front, are the last.
bool repeats(const Shape& part, const Shape& whole) {
  const auto is_not_one = [](std::int64_t size) { return size != 1; };
  const auto first = std::find_if(part.dims().begin(), part.dims().end(), is_not_one);
  const auto n = part.dims().end() - first;
  return part.rank() <= whole.rank() && std::equal(first, part.dims().end(), whole.dims().end() - n);
}

void check_operands(const char* op, const Buffer& a, const Buffer& b) {
  check_values(op, "a", a);
  check_values(op, "b", b);
  require(a.dtype() == b.dtype(), op, ": b is ", b, ", expected ", a.dtype(), " like a");
}

// Gradients of repeated operands are summed within the kernels of these.
bool has_sums(Binary op) { return op <= Binary::div; }

// The kernel that computes the gradient of a, or of b.
std::string backward_kernel(Binary op, bool is_a) {
  if (op == Binary::add || (op == Binary::sub && is_a)) return "add_backward";
  if (op == Binary::sub) return "sub_backward";
  if (op == Binary::mul) return "mul_backward";
  return str(name(op), is_a ? "_backward_a" : "_backward_b");
}

// One operand's gradient: dx like `self`, that operand. Either may be null where the formula lacks it.
struct Gradient {
  const Buffer &self, &other, &dy, &dx;
  bool is_a;
};

void check_gradient(const char* what, Binary op, const Gradient& g, bool is_summed) {
  const char* names[] = {g.is_a ? "a" : "b", g.is_a ? "b" : "a", g.is_a ? "da" : "db"};
  const bool needs_other = op != Binary::add && op != Binary::sub;
  const bool needs_self = needs_other && op != Binary::mul && !(op == Binary::div && g.is_a);
  check_values(what, "dy", g.dy);
  check_values(what, names[2], g.dx);
  require(g.dx.dtype() == g.dy.dtype() && repeats(g.dx.shape(), g.dy.shape()), what, ": ", names[2], " is ",
          g.dx, ", expected ", g.dy, " like dy, or the end of that shape");
  require(!is_summed || has_sums(op), what, ": ", names[2], " is ", g.dx, ", expected the shape of dy ",
          g.dy);
  if (g.self || needs_self) check_like(what, names[0], g.self, names[2], g.dx);
  if (!g.other && !needs_other) return;
  check_values(what, names[1], g.other);
  const bool fits = is_summed ? g.other.numel() == g.dy.numel() : repeats(g.other.shape(), g.dy.shape());
  require(g.other.dtype() == g.dy.dtype() && fits, what, ": ", names[1], " is ", g.other, " with ", names[2],
          " ", g.dx, ", expected the shape of dy ", g.dy, is_summed ? "" : " or the end of it");
}

void encode_gradient(CommandEncoder& encoder, Binary op, const Gradient& g, Accumulate accumulate) {
  const std::string what = str(name(op), g.is_a ? "_backward_a" : "_backward_b");
  const bool is_summed = g.dx && g.dy && g.dx.numel() != g.dy.numel();
  check_gradient(what.c_str(), op, g, is_summed);
  const std::string kernel = backward_kernel(op, g.is_a);
  if (!is_summed && op <= Binary::sub) {
    for (const Buffer& unread : {g.self, g.other}) {
      if (unread) check_device(what.c_str(), "an operand", unread, encoder.device());
      if (unread && overlap(unread, g.dx)) check_like(what.c_str(), "dx", g.dx, "an operand", unread);
    }
    const float sign = kernel == "sub_backward" ? -1.0f : 1.0f;
    return unary_backward(encoder, Unary::scale, g.dy, g.dy, g.dx.reshape(g.dy.shape()), accumulate, sign);
  }
  const Buffer &self = g.self ? g.self : g.dy, &other = g.other ? g.other : g.dy;
  for (const Buffer& read : {g.dy, self, other}) {
    if (is_summed) check_no_overlap(what.c_str(), "the gradient", g.dx, "an input", read);
  }
  const std::int64_t cols = g.dx.numel();
  const BinaryBackwardParams params{cols > 0 ? g.dy.numel() / cols : 0, cols, other.numel(),
                                    static_cast<std::uint32_t>(accumulate)};
  encoder.encode({.kernel = str(kernel, is_summed ? "_sum_" : "_", g.dy.dtype()),
                  .params = params_bytes(params),
                  .reads = {g.dy, self, other},
                  .writes = {g.dx},
                  .is_empty = g.dy.numel() == 0,
                  .adds = accumulate == Accumulate::yes});
}

Var unary(Unary op, const Var& x, float factor, const char* label) {
  Tape& tape = common_tape(label, {x});
  check_values(label, "x", x.value());
  const Buffer y = tape.alloc(x.dtype(), x.shape());
  unary_forward(tape.encoder(), op, x.value(), y, factor);
  const bool saves_nothing = op == Unary::scale || op == Unary::shift || op == Unary::divide;
  const Buffer saved = saves_nothing ? Buffer() : saves_output(op) ? y : x.value();
  return tape.record(label, {x}, y, [op, saved, factor](Backward& b) {
    const auto [dx, accumulate] = b.grad(0);
    unary_backward(b.encoder(), op, saved ? saved : b.dy(), b.dy(), dx, accumulate, factor);
  });
}
Var unary(Unary op, const Var& x) { return unary(op, x, 1.0f, name(op)); }

// Operands as the kernels take them: one has y's elements, the other one as well or repeats over leading
// dimensions. Whatever else is broadcast is expanded.
struct Operands {
  Var a, b;
  Shape y;
};

Operands operands(Binary op, const Var& a, const Var& b) {
  Operands o{a, b, broadcast_shape(name(op), a.shape(), b.shape())};
  for (Var* v : {&o.a, &o.b}) {
    const bool is_whole = v->value().numel() == o.y.numel();
    if (!repeats(v->shape(), o.y) || (!is_whole && !has_sums(op) && v->requires_grad())) *v = expand(*v, o.y);
  }
  return o;
}

// What the gradients of a and of b read beside dy; each operand is kept only if one that is wanted reads it.
struct Kept {
  Buffer a, b;
};

Kept kept(Binary op, const Var& a, const Var& b) {
  if (op <= Binary::sub) return {};
  const bool wants_a = a.requires_grad(), wants_b = b.requires_grad(), is_mul = op == Binary::mul;
  const bool a_is_read = wants_b || (wants_a && !is_mul && op != Binary::div);
  const bool b_is_read = wants_a || (wants_b && !is_mul);
  return {a_is_read ? a.value() : Buffer(), b_is_read ? b.value() : Buffer()};
}

// dy itself where it is the gradient of a sum's term.
void operand_backward(Backward& back, Binary op, std::size_t input, const Kept& kept, std::int64_t count) {
  if (!back.wants(input)) return;
  const bool is_term = op == Binary::add || (op == Binary::sub && input == 0);
  if (is_term && count == back.dy().numel()) return back.pass(input, back.dy());
  const auto [dx, accumulate] = back.grad(input);
  if (input == 0) {
    binary_backward_a(back.encoder(), op, op == Binary::mul || op == Binary::div ? Buffer() : kept.a, kept.b,
                      back.dy(), dx, accumulate);
  } else {
    binary_backward_b(back.encoder(), op, kept.a, op == Binary::mul ? Buffer() : kept.b, back.dy(), dx,
                      accumulate);
  }
}

Var binary(Binary op, const Var& left, const Var& right) {
  Tape& tape = common_tape(name(op), {left, right});
  check_operands(name(op), left.value(), right.value());
  const auto [a, b, shape] = operands(op, left, right);
  const Buffer y = tape.alloc(a.dtype(), shape);
  binary_forward(tape.encoder(), op, a.value(), b.value(), y);
  return tape.record(
      name(op), {a, b}, y,
      [op, kept = kept(op, a, b), na = a.value().numel(), nb = b.value().numel()](Backward& back) {
        operand_backward(back, op, 0, kept, na);
        operand_backward(back, op, 1, kept, nb);
      });
}

// A constant of one element, of x's dtype.
Var constant_like(const char* op, const Var& x, double value) {
  Tape& tape = common_tape(op, {x});
  check_values(op, "x", x.value());
  const Buffer one = tape.alloc(x.dtype(), {1});
  tape.encoder().fill(one, static_cast<float>(value));
  return tape.constant(one);
}

}  // namespace

const char* name(Unary op) { return kUnaryNames[static_cast<std::size_t>(op)]; }
const char* name(Binary op) { return kBinaryNames[static_cast<std::size_t>(op)]; }

bool saves_output(Unary op) {
  return op == Unary::exp || op == Unary::sqrt || op == Unary::rsqrt || op == Unary::sigmoid ||
         op == Unary::tanh || op == Unary::softcap || op == Unary::relu;
}

void unary_forward(CommandEncoder& encoder, Unary op, const Buffer& x, const Buffer& y, float factor) {
  check_values(name(op), "x", x);
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
  check_operands(name(op), a, b);
  const Shape shape = broadcast_shape(name(op), a.shape(), b.shape());
  const bool a_is_whole = a.numel() == shape.numel();
  require(
      (a_is_whole || b.numel() == shape.numel()) && repeats(a.shape(), shape) && repeats(b.shape(), shape),
      name(op), ": a is ", a, ", b is ", b, ", expected equal shapes, or one the end of the other");
  check_is(name(op), "y", y, a.dtype(), shape);
  encoder.encode({.kernel = str(name(op), "_forward_", a.dtype()),
                  .params = params_bytes(BinaryParams{y.numel(), a.numel(), b.numel()}),
                  .reads = {a, b},
                  .writes = {y}});
}

void binary_backward_a(CommandEncoder& encoder, Binary op, const Buffer& a, const Buffer& b, const Buffer& dy,
                       const Buffer& da, Accumulate accumulate) {
  encode_gradient(encoder, op, {a, b, dy, da, true}, accumulate);
}

void binary_backward_b(CommandEncoder& encoder, Binary op, const Buffer& a, const Buffer& b, const Buffer& dy,
                       const Buffer& db, Accumulate accumulate) {
  encode_gradient(encoder, op, {b, a, dy, db, false}, accumulate);
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

Var relu(const Var& x) { return unary(Unary::relu, x); }
Var abs(const Var& x) { return unary(Unary::abs, x); }

Var add(const Var& a, const Var& b) { return binary(Binary::add, a, b); }
Var sub(const Var& a, const Var& b) { return binary(Binary::sub, a, b); }
Var mul(const Var& a, const Var& b) { return binary(Binary::mul, a, b); }
Var div(const Var& a, const Var& b) { return binary(Binary::div, a, b); }
Var maximum(const Var& a, const Var& b) { return binary(Binary::maximum, a, b); }
Var minimum(const Var& a, const Var& b) { return binary(Binary::minimum, a, b); }
Var pow(const Var& a, const Var& b) { return binary(Binary::pow, a, b); }

Var add(const Var& x, double c) { return unary(Unary::shift, x, static_cast<float>(c), "add"); }
Var sub(const Var& x, double c) { return unary(Unary::shift, x, static_cast<float>(-c), "sub"); }
Var sub(double c, const Var& x) { return add(neg(x), c); }
Var mul(const Var& x, double c) { return unary(Unary::scale, x, static_cast<float>(c), "mul"); }
Var div(const Var& x, double c) { return unary(Unary::divide, x, static_cast<float>(c), "div"); }
Var div(double c, const Var& x) { return unary(Unary::reciprocal, x, static_cast<float>(c), "div"); }
Var pow(const Var& x, double c) { return unary(Unary::power, x, static_cast<float>(c), "pow"); }
Var maximum(const Var& x, double c) { return maximum(x, constant_like("maximum", x, c)); }
Var minimum(const Var& x, double c) { return minimum(x, constant_like("minimum", x, c)); }

Var clamp(const Var& x, double least, double most) {
  require(least <= most, "clamp: least is ", least, ", most is ", most, ", expected least <= most");
  return minimum(maximum(x, least), most);
}

}  // namespace mixtape
