// Tensors on the host, in double precision, for oracles and comparisons.
#pragma once

#include <vector>

#include "mixtape/runtime/buffer.h"

namespace mixtape::testing {

// `values` are exactly representable in `dtype`.
struct HostTensor {
  DType dtype = DType::f32;
  Shape shape;
  std::vector<double> values;
};

// Rounds the values to the dtype.
HostTensor make_tensor(DType dtype, const Shape& shape, std::vector<double> values);
// Normally distributed, mean 0, standard deviation `scale`; the same for the same seed everywhere.
HostTensor random_tensor(DType dtype, const Shape& shape, std::uint64_t seed, double scale = 1.0);
// Uniform integers in [0, limit).
HostTensor random_indices(const Shape& shape, std::uint64_t seed, std::int64_t limit,
                          DType dtype = DType::u32);

Buffer upload(const Device& device, const HostTensor& tensor);
HostTensor download(const Buffer& buffer);
std::vector<std::byte> download_bytes(const Buffer& buffer);

}  // namespace mixtape::testing
