#include "mixtape/runtime/creation.h"

#include <cmath>
#include <limits>

#include "mixtape/core/random.h"

namespace mixtape {
namespace {

template <class T>
T converted(const char* what, double value) {
  if constexpr (std::is_integral_v<T>) {
    using Limits = std::numeric_limits<T>;
    require(value == std::floor(value) && value >= static_cast<double>(Limits::min()) &&
                value <= static_cast<double>(Limits::max()),
            what, ": value is ", value, ", expected a whole number of ", dtype_of<T>());
    return static_cast<T>(value);
  } else {
    return T(static_cast<float>(value));
  }
}

// value(i) for every element i.
template <class T, class Value>
Buffer filled(const char* what, const Device& device, const Shape& shape, const Value& value) {
  std::vector<T> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = converted<T>(what, value(i));
  return Buffer::from(device, shape, values);
}

template <class Value>
Buffer make(const char* what, const Device& device, const Shape& shape, DType dtype, const Value& value) {
  switch (dtype) {
    case DType::f32:
      return filled<float>(what, device, shape, value);
    case DType::bf16:
      return filled<bf16>(what, device, shape, value);
    case DType::f16:
      return filled<f16>(what, device, shape, value);
    case DType::i32:
      return filled<std::int32_t>(what, device, shape, value);
    case DType::u32:
      return filled<std::uint32_t>(what, device, shape, value);
    case DType::u8:
      return filled<std::uint8_t>(what, device, shape, value);
    case DType::u16:
      return filled<std::uint16_t>(what, device, shape, value);
  }
  return {};
}

void check_value_dtype(const char* what, DType dtype) {
  require(is_value(dtype), what, ": dtype is ", dtype, ", expected f32, bf16 or f16");
}

}  // namespace

Buffer zeros(const Device& device, const Shape& shape, DType dtype) { return device.alloc(dtype, shape); }
Buffer ones(const Device& device, const Shape& shape, DType dtype) { return full(device, shape, 1.0, dtype); }

Buffer full(const Device& device, const Shape& shape, double value, DType dtype) {
  return make("full", device, shape, dtype, [value](std::size_t) { return value; });
}

Buffer arange(const Device& device, double start, double stop, double step, DType dtype) {
  require(std::isfinite(start) && std::isfinite(stop) && std::isfinite(step) && step != 0.0,
          "arange: start is ", start, ", stop is ", stop, ", step is ", step,
          ", expected finite numbers and a step other than 0");
  const double count = std::max(std::ceil((stop - start) / step), 0.0);
  require(count < 0x1p53, "arange: ", count, " elements, expected fewer than 2^53");
  return make("arange", device, {static_cast<std::int64_t>(count)}, dtype,
              [=](std::size_t i) { return start + static_cast<double>(i) * step; });
}

Buffer randn(const Device& device, const Shape& shape, std::uint64_t seed, double deviation, DType dtype) {
  check_value_dtype("randn", dtype);
  require(std::isfinite(deviation) && deviation >= 0.0, "randn: deviation is ", deviation,
          ", expected a number of 0 or more");
  return make("randn", device, shape, dtype, [=](std::size_t i) { return deviation * normal(seed, i); });
}

Buffer uniform(const Device& device, const Shape& shape, std::uint64_t seed, double low, double high,
               DType dtype) {
  check_value_dtype("uniform", dtype);
  require(std::isfinite(low) && std::isfinite(high) && low < high, "uniform: low is ", low, ", high is ",
          high, ", expected finite numbers with low < high");
  return make("uniform", device, shape, dtype,
              [=](std::size_t i) { return low + (high - low) * uniform(seed, i); });
}

}  // namespace mixtape
