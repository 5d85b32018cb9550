// The logistic function for kernels: no overflow, and no cancellation on either side.
#pragma once

#include "mixtape/backend/gpu/kernel_language.h"

namespace mixtape {

// a * x, and 0 where a is 0 even if x is infinite.
MIXTAPE_DEVICE float mul_or_zero(float a, float x) { return a == 0.0f ? 0.0f : a * x; }

struct Sigmoids {
  float of_x;        // s(x)
  float of_minus_x;  // s(-x) = 1 - s(x)
};
// T: the type of what x came from and the result goes to; 16 bits do not show the faster exponential.
template <class T = float>
MIXTAPE_DEVICE Sigmoids sigmoids(float x) {
  const float e = sizeof(T) == 2 ? exp_fast(-abs_f32(x)) : exp_f32(-abs_f32(x));
  const float large = reciprocal_f32(1.0f + e);
  const float small = e * large;
  return x < 0.0f ? Sigmoids{small, large} : Sigmoids{large, small};
}

template <class T = float>
MIXTAPE_DEVICE float silu_of(float x) {
  return mul_or_zero(sigmoids<T>(x).of_x, x);
}

// The slope of silu.
MIXTAPE_DEVICE float silu_slope(float x, Sigmoids s) {
  return mul_or_zero(s.of_x, 1.0f + mul_or_zero(s.of_minus_x, x));
}

}  // namespace mixtape
