#include "mixtape/testing/host_tensor.h"

#include <cmath>

namespace mixtape::testing {
namespace {

// SplitMix64: a counter turned into well-mixed bits.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

double uniform(std::uint64_t seed, std::uint64_t i) {
  return (static_cast<double>(mix(mix(seed) + i) >> 11) + 0.5) * 0x1p-53;
}

double rounded(DType dtype, double v) {
  switch (dtype) {
    case DType::f32:
      return static_cast<double>(static_cast<float>(v));
    case DType::bf16:
      return static_cast<double>(static_cast<float>(bf16(static_cast<float>(v))));
    case DType::f16:
      return static_cast<double>(static_cast<float>(f16(static_cast<float>(v))));
    default:
      return v;
  }
}

template <class T>
Buffer upload_as(const Device& device, const HostTensor& tensor) {
  std::vector<T> values;
  values.reserve(tensor.values.size());
  for (const double v : tensor.values) {
    if constexpr (std::is_integral_v<T>) {
      values.push_back(static_cast<T>(static_cast<std::int64_t>(v)));
    } else {
      values.push_back(T(static_cast<float>(v)));
    }
  }
  return Buffer::from(device, tensor.shape, values);
}

template <class T>
HostTensor download_as(const Buffer& buffer) {
  HostTensor tensor{buffer.dtype(), buffer.shape(), {}};
  for (const T v : buffer.to_vector<T>()) {
    if constexpr (std::is_integral_v<T>) {
      tensor.values.push_back(static_cast<double>(v));
    } else {
      tensor.values.push_back(static_cast<double>(static_cast<float>(v)));
    }
  }
  return tensor;
}

}  // namespace

HostTensor make_tensor(DType dtype, const Shape& shape, std::vector<double> values) {
  require(static_cast<std::int64_t>(values.size()) == shape.numel(), "make_tensor: got ", values.size(),
          " values for ", shape);
  for (double& v : values) v = rounded(dtype, v);
  return {dtype, shape, std::move(values)};
}

HostTensor random_tensor(DType dtype, const Shape& shape, std::uint64_t seed, double scale) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double radius = std::sqrt(-2.0 * std::log(uniform(seed, 2 * i)));
    values[i] = scale * radius * std::cos(6.283185307179586 * uniform(seed, 2 * i + 1));
  }
  return make_tensor(dtype, shape, std::move(values));
}

HostTensor random_indices(const Shape& shape, std::uint64_t seed, std::int64_t limit, DType dtype) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::floor(uniform(seed, i) * static_cast<double>(limit));
  }
  return {dtype, shape, std::move(values)};
}

Buffer upload(const Device& device, const HostTensor& tensor) {
  switch (tensor.dtype) {
    case DType::f32:
      return upload_as<float>(device, tensor);
    case DType::bf16:
      return upload_as<bf16>(device, tensor);
    case DType::f16:
      return upload_as<f16>(device, tensor);
    case DType::i32:
      return upload_as<std::int32_t>(device, tensor);
    case DType::u32:
      return upload_as<std::uint32_t>(device, tensor);
    case DType::u16:
      return upload_as<std::uint16_t>(device, tensor);
    case DType::u8:
      return upload_as<std::uint8_t>(device, tensor);
  }
  return {};
}

HostTensor download(const Buffer& buffer) {
  switch (buffer.dtype()) {
    case DType::f32:
      return download_as<float>(buffer);
    case DType::bf16:
      return download_as<bf16>(buffer);
    case DType::f16:
      return download_as<f16>(buffer);
    case DType::i32:
      return download_as<std::int32_t>(buffer);
    case DType::u32:
      return download_as<std::uint32_t>(buffer);
    case DType::u16:
      return download_as<std::uint16_t>(buffer);
    case DType::u8:
      return download_as<std::uint8_t>(buffer);
  }
  return {};
}

std::vector<std::byte> download_bytes(const Buffer& buffer) {
  std::vector<std::byte> bytes(buffer.bytes());
  buffer.read_bytes(bytes.data());
  return bytes;
}

}  // namespace mixtape::testing
