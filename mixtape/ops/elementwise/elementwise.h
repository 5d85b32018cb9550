// Functions of one element, and of two.
//   scale    y = factor * x                            dx = factor * dy
//   exp      y = e^x                                   dx = dy * y
//   log      y = ln x                                  dx = dy / x
//   sqrt     y = x^(1/2)                               dx = dy / (2 y)
//   rsqrt    y = x^(-1/2)                              dx = -dy * y^3 / 2
//   sigmoid  y = s(x) = 1 / (1 + e^-x)                 dx = dy * y * (1 - y)
//   tanh     y = tanh x                                dx = dy * (1 - y^2)
//   gelu     y = x/2 (1 + tanh u) = x s(2u)            dx = dy * s(2u) * (1 + 2x s(-2u) du/dx)
//              u = sqrt(2/pi) (x + 0.044715 x^3)
//   silu     y = x s(x)                                dx = dy * s(x) * (1 + x s(-x))
//   softcap  y = c tanh(x/c)                           dx = dy * (1 - (y/c)^2)
//   relu     y = max(x, 0)                             dx = dy where y > 0, else 0
//   abs      y = |x|                                   dx = dy sign x, 0 at 0
//   with a number c:
//   shift       y = x + c                              dx = dy
//   divide      y = x / c                              dx = dy / c
//   reciprocal  y = c / x                              dx = -dy/x * c/x
//   power       y = x^c                                dx = dy c x^(c-1), 0 for c = 0
//   of a and b:
//   add, sub  y = a + b, a - b                         da = dy           db = dy, -dy
//   mul       y = a * b                                da = dy * b       db = dy * a
//   div       y = a / b                                da = dy / b       db = -dy/b * a/b
//   maximum   y = a where a >= b, else b               da = dy where y is a, db = dy where it is b, else 0
//   minimum   y = a where a <= b, else b               the same
//   pow       y = a^b                                  da = dy b a^(b-1), 0 for b = 0
//                                                      db = dy a^b ln a, 0 for a = 0 and b >= 0
// Shapes: unary x, y, dy, dx equal, rank 1 or more. f32, bf16, f16; computed in f32, outputs rounded once.
//   Binary, on the tape: a and b broadcast as NumPy's (sizes equal or 1, aligned at the end), up to rank 8.
//   Buffers: a and b equal, or one, but for sizes of 1 in front, is a suffix of the other and repeats over its
//   leading dimensions; y has the broadcast shape. The gradient of the smaller one sums over those dimensions
//   (add, sub, mul, div); whatever else is broadcast goes through expand (reduce/axes.h).
// Saved for backward: y of exp, sqrt, rsqrt, sigmoid, tanh, softcap, relu; x of log, gelu, silu, abs,
//   reciprocal, power; nothing of scale, shift, divide, add and sub; a and b of the others, if a gradient that
//   is wanted reads them.
// Deterministic: a broadcast sum adds blocks of 64 rows in order, then the blocks.
// Edges: NaN goes through. log of 0 is -inf, of less NaN; the slope of sqrt at 0 is inf; silu and gelu are 0
//   with gradient 0 at -inf, +inf with gradient 1 at +inf. Where maximum or minimum meet a NaN, it is y. pow
//   is C's: of a negative base it is NaN unless the exponent is whole, and b's gradient is NaN.
// Accuracy of y, in units of f32, in 16 bits half a unit more: scale, sqrt, add, sub, mul, div, shift, divide,
//   reciprocal 0.5; rsqrt 1; relu, abs, maximum, minimum exact; exp 2 (on the CPU 1.01); log 2; sigmoid 2.1;
//   silu 3 (+ |x| 2^-149); tanh, softcap, pow, power 4; gelu 4 + 8|u|.
//   Gradients, in units of theirs: 4 (gelu 4 + 8|u|, pow and power 8), + 2 epsilon |dy| where 1 - y or
//   1 - y^2 cancels; a broadcast sum of n rows adds (64 + n/64) 2^-24 of the sum of the terms' magnitudes. An
//   expanded operand's terms are rounded to the dtype before they are summed as row_sum's (reduce.h).
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree.
#pragma once

#include <type_traits>

#include "mixtape/autograd/tape.h"
#include "mixtape/ops/elementwise/elementwise_params.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

#define MIXTAPE_ENUMERATOR(name) name,
enum class Unary : std::uint32_t { MIXTAPE_UNARY_OPS(MIXTAPE_ENUMERATOR) };
enum class Binary : std::uint32_t { MIXTAPE_BINARY_OPS(MIXTAPE_ENUMERATOR) };
#undef MIXTAPE_ENUMERATOR

const char* name(Unary op);
const char* name(Binary op);

// Whether unary_backward wants y as `saved`; the others want x (scale, shift, divide: anything like dy).
bool saves_output(Unary op);

// y may be x. `factor` is scale's factor or the number c, and unused by the others.
void unary_forward(CommandEncoder& encoder, Unary op, const Buffer& x, const Buffer& y, float factor = 1.0f);

// dx may be dy or saved.
void unary_backward(CommandEncoder& encoder, Unary op, const Buffer& saved, const Buffer& dy,
                    const Buffer& dx, Accumulate accumulate = Accumulate::no, float factor = 1.0f);

// y may be the operand of its shape.
void binary_forward(CommandEncoder& encoder, Binary op, const Buffer& a, const Buffer& b, const Buffer& y);

// The gradient of a, or of b, which has that operand's shape. An operand that the formula doesn't name may be
// null. An unbroadcast gradient may be dy or an operand of its shape.
void binary_backward_a(CommandEncoder& encoder, Binary op, const Buffer& a, const Buffer& b, const Buffer& dy,
                       const Buffer& da, Accumulate accumulate = Accumulate::no);
void binary_backward_b(CommandEncoder& encoder, Binary op, const Buffer& a, const Buffer& b, const Buffer& dy,
                       const Buffer& db, Accumulate accumulate = Accumulate::no);

Var neg(const Var& x);
Var scale(const Var& x, float factor);
Var exp(const Var& x);
Var log(const Var& x);
Var sqrt(const Var& x);
Var rsqrt(const Var& x);
Var sigmoid(const Var& x);
Var tanh(const Var& x);
Var gelu(const Var& x);
Var silu(const Var& x);
Var softcap(const Var& x, float cap);  // cap > 0
Var relu(const Var& x);
Var abs(const Var& x);

Var add(const Var& a, const Var& b);
Var sub(const Var& a, const Var& b);
Var mul(const Var& a, const Var& b);
Var div(const Var& a, const Var& b);
Var maximum(const Var& a, const Var& b);
Var minimum(const Var& a, const Var& b);
Var pow(const Var& a, const Var& b);

// With a number, which becomes f32.
Var add(const Var& x, double c);
Var sub(const Var& x, double c);
Var sub(double c, const Var& x);
Var mul(const Var& x, double c);
Var div(const Var& x, double c);
Var div(double c, const Var& x);
Var pow(const Var& x, double c);
Var maximum(const Var& x, double c);
Var minimum(const Var& x, double c);
Var clamp(const Var& x, double least, double most);  // least <= most; the gradient passes from least to most

inline Var operator-(const Var& x) { return neg(x); }
inline Var operator+(const Var& a, const Var& b) { return add(a, b); }
inline Var operator-(const Var& a, const Var& b) { return sub(a, b); }
inline Var operator*(const Var& a, const Var& b) { return mul(a, b); }
inline Var operator/(const Var& a, const Var& b) { return div(a, b); }
inline Var operator+(const Var& x, double c) { return add(x, c); }
inline Var operator+(double c, const Var& x) { return add(x, c); }
inline Var operator-(const Var& x, double c) { return sub(x, c); }
inline Var operator-(double c, const Var& x) { return sub(c, x); }
inline Var operator*(const Var& x, double c) { return mul(x, c); }
inline Var operator*(double c, const Var& x) { return mul(x, c); }
inline Var operator/(const Var& x, double c) { return div(x, c); }
inline Var operator/(double c, const Var& x) { return div(c, x); }

// `x += y` makes x the result of x + y; other handles of the old x keep its value.
#define MIXTAPE_COMPOUND(op)                \
  template <class T>                        \
  Var& operator op##=(Var& x, const T& y) { \
    return x = x op y;                      \
  }
MIXTAPE_COMPOUND(+)
MIXTAPE_COMPOUND(-)
MIXTAPE_COMPOUND(*)
MIXTAPE_COMPOUND(/)
#undef MIXTAPE_COMPOUND

// Whatever else stands beside a Var: a sentence from the compiler instead of its list of candidates.
template <class T>
inline constexpr bool kIsOperand = std::is_same_v<T, Var> || std::is_convertible_v<const T&, double>;
#define MIXTAPE_REFUSE_OTHERS(op)                                                                        \
  template <class T>                                                                                     \
  requires(!kIsOperand<T>) Var operator op(const Var& x, const T&) {                                     \
    static_assert(kIsOperand<T>,                                                                         \
                  "beside a Var stands a Var or a number: tape.constant(buffer) makes one of a Buffer"); \
    return x;                                                                                            \
  }                                                                                                      \
  template <class T>                                                                                     \
  requires(!kIsOperand<T>) Var operator op(const T& other, const Var& x) { return x op other; }
MIXTAPE_REFUSE_OTHERS(+)
MIXTAPE_REFUSE_OTHERS(-)
MIXTAPE_REFUSE_OTHERS(*)
MIXTAPE_REFUSE_OTHERS(/)
#undef MIXTAPE_REFUSE_OTHERS

}  // namespace mixtape
