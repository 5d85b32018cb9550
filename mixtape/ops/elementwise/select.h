// Comparisons, and choosing by what they found.
//   less, less_equal, greater, greater_equal, equal, not_equal of a and b:  y = 1 where it is so, else 0
//   where  y = a where mask isn't 0, else b        da = dy where mask isn't 0, else 0; db the other way round
// Shapes: a mask is u8. On the tape everything is broadcast as NumPy's, up to rank 8. Buffers: y has rank 1 or
//   more, the others are like it or have one element. Compared are two of one dtype: f32, bf16, f16 (in f32), or
//   i32, u32, u8, u16. where: a, b, y of one dtype, any; gradients f32, bf16, f16.
// Saved for backward: the mask. Comparisons have no gradient.
// Deterministic.
// Edges: a NaN is unequal to everything, and neither less nor greater. What isn't chosen has gradient 0 whatever
//   it is.
// Accuracy: exact; a gradient is rounded once with Accumulate::yes; an operand that was broadcast as
//   expand's (reduce/axes.h).
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

enum class Comparison : std::uint32_t { less, less_equal, greater, greater_equal, equal, not_equal };
const char* name(Comparison op);

void compare_forward(CommandEncoder& encoder, Comparison op, const Buffer& a, const Buffer& b,
                     const Buffer& y);

void where_forward(CommandEncoder& encoder, const Buffer& mask, const Buffer& a, const Buffer& b,
                   const Buffer& y);
// The gradient of a (chosen where the mask isn't 0), or of b.
void where_backward(CommandEncoder& encoder, const Buffer& mask, bool is_a, const Buffer& dy,
                    const Buffer& dx, Accumulate accumulate = Accumulate::no);

Var compare(Comparison op, const Var& a, const Var& b);
// c becomes of x's dtype: rounded there, and for integers it must be one of theirs.
Var compare(Comparison op, const Var& x, double c);
Var where(const Var& mask, const Var& a, const Var& b);
Var where(const Var& mask, const Var& a, double b);
Var where(const Var& mask, double a, const Var& b);

#define MIXTAPE_COMPARISON(function, op, mirrored)                                                   \
  inline Var function(const Var& a, const Var& b) { return compare(Comparison::function, a, b); }    \
  inline Var function(const Var& x, double c) { return compare(Comparison::function, x, c); }        \
  inline Var operator op(const Var& a, const Var& b) { return compare(Comparison::function, a, b); } \
  inline Var operator op(const Var& x, double c) { return compare(Comparison::function, x, c); }     \
  inline Var operator op(double c, const Var& x) { return compare(Comparison::mirrored, x, c); }
MIXTAPE_COMPARISON(less, <, greater)
MIXTAPE_COMPARISON(less_equal, <=, greater_equal)
MIXTAPE_COMPARISON(greater, >, less)
MIXTAPE_COMPARISON(greater_equal, >=, less_equal)
MIXTAPE_COMPARISON(equal, ==, equal)
MIXTAPE_COMPARISON(not_equal, !=, not_equal)
#undef MIXTAPE_COMPARISON

}  // namespace mixtape
