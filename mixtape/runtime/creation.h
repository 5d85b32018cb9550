// Buffers to start from, filled on the host: the same values on every device.
#pragma once

#include <cstdint>

#include "mixtape/runtime/buffer.h"

namespace mixtape {

Buffer zeros(const Device& device, const Shape& shape, DType dtype = DType::f32);
Buffer ones(const Device& device, const Shape& shape, DType dtype = DType::f32);
// `value` is rounded to a value dtype; an integer dtype must have it. Throws invalid_argument else.
Buffer full(const Device& device, const Shape& shape, double value, DType dtype = DType::f32);

// [n]: start, start + step, ... as long as they lie before stop; the values as full's. Throws invalid_argument for
// a step of 0 or what isn't finite.
Buffer arange(const Device& device, double start, double stop, double step = 1.0, DType dtype = DType::f32);

// Random numbers of core/random.h: element i is made of `seed` and i alone. Value dtypes.
// Normally distributed around 0; standard deviation 0 or more.
Buffer randn(const Device& device, const Shape& shape, std::uint64_t seed, double deviation = 1.0,
             DType dtype = DType::f32);
// In [low, high), before it is rounded to the dtype; low < high.
Buffer uniform(const Device& device, const Shape& shape, std::uint64_t seed, double low = 0.0,
               double high = 1.0, DType dtype = DType::f32);

}  // namespace mixtape
