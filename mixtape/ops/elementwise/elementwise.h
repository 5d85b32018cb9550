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
//   add, sub, mul, div of a and b                      mul: da = dy*b;  div: da = dy/b, db = -dy/b * a/b
// Shapes: unary x, y, dy, dx equal, rank 1 or more. f32, bf16, f16; computed in f32, outputs rounded once.
//   Binary: a and b equal, or one is a suffix of the other and repeats over its leading dimensions; y has the
//   larger shape, and the gradient of the smaller one sums over those dimensions.
// Saved for backward: y of exp, sqrt, rsqrt, sigmoid, tanh, softcap; x of log, gelu, silu; nothing of scale,
//   add and sub; a and b of mul and div.
// Deterministic: a broadcast sum adds blocks of 64 rows in order, then the blocks.
// Edges: NaN goes through. log of 0 is -inf, of less NaN; the slope of sqrt at 0 is inf; silu and gelu are 0
//   with gradient 0 at -inf, +inf with gradient 1 at +inf.
// Accuracy of y, in units of f32, in 16 bits half a unit more: scale, sqrt, add, sub, mul, div 0.5; rsqrt 1;
//   exp 2 (on the CPU 1.01); log 2; sigmoid 2.1; silu 3 (+ |x| 2^-149); tanh, softcap 4; gelu 4 + 8|u|.
//   Gradients, in units of theirs: 4 (gelu 4 + 8|u|), + 2 epsilon |dy| where 1 - y or 1 - y^2 cancels; a
//   broadcast sum of n rows adds (64 + n/64) 2^-24 of the sum of the terms' magnitudes.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, or an empty dimension.
#pragma once

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

// Whether unary_backward wants y as `saved`; the others want x (scale: anything like dy).
bool saves_output(Unary op);

// y may be x. `factor` is scale's factor or softcap's cap, and unused by the others.
void unary_forward(CommandEncoder& encoder, Unary op, const Buffer& x, const Buffer& y, float factor = 1.0f);

// dx may be dy or saved.
void unary_backward(CommandEncoder& encoder, Unary op, const Buffer& saved, const Buffer& dy,
                    const Buffer& dx, Accumulate accumulate = Accumulate::no, float factor = 1.0f);

// y may be the operand of its shape.
void binary_forward(CommandEncoder& encoder, Binary op, const Buffer& a, const Buffer& b, const Buffer& y);

// The gradient of a, or of b, of a * b or a / b. An unbroadcast da or db may be dy or an
// operand of its shape.
void mul_backward(CommandEncoder& encoder, const Buffer& other, const Buffer& dy, const Buffer& dx,
                  Accumulate accumulate = Accumulate::no);
void div_backward_a(CommandEncoder& encoder, const Buffer& b, const Buffer& dy, const Buffer& da,
                    Accumulate accumulate = Accumulate::no);
void div_backward_b(CommandEncoder& encoder, const Buffer& a, const Buffer& b, const Buffer& dy,
                    const Buffer& db, Accumulate accumulate = Accumulate::no);

// dx = sign * (dy summed over the leading dimensions that dx lacks): the gradient of a broadcast term.
void sum_leading(CommandEncoder& encoder, const Buffer& dy, const Buffer& dx, bool negate = false,
                 Accumulate accumulate = Accumulate::no);

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

Var add(const Var& a, const Var& b);
Var sub(const Var& a, const Var& b);
Var mul(const Var& a, const Var& b);
Var div(const Var& a, const Var& b);

inline Var operator-(const Var& x) { return neg(x); }
inline Var operator*(float factor, const Var& x) { return scale(x, factor); }
inline Var operator*(const Var& x, float factor) { return scale(x, factor); }
inline Var operator+(const Var& a, const Var& b) { return add(a, b); }
inline Var operator-(const Var& a, const Var& b) { return sub(a, b); }
inline Var operator*(const Var& a, const Var& b) { return mul(a, b); }
inline Var operator/(const Var& a, const Var& b) { return div(a, b); }

}  // namespace mixtape
