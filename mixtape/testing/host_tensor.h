// Tensors on the host, in double precision, for oracles and comparisons.
#pragma once

#include <cmath>
#include <vector>

#include "mixtape/runtime/buffer.h"

namespace mixtape::testing {

// What every op that computes is tested with.
inline constexpr DType kValueDtypes[] = {DType::f32, DType::bf16, DType::f16};

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

// ||a-b|| / ||b||; where b is all zeros, 0 for an equal a and infinite otherwise. Different lengths:
// infinite.
template <class A, class B>
double relative_distance(const std::vector<A>& a, const std::vector<B>& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double difference = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const auto found = static_cast<double>(a[i]), wanted = static_cast<double>(b[i]);
    difference += (found - wanted) * (found - wanted);
    norm += wanted * wanted;
  }
  if (norm == 0.0) return difference == 0.0 ? 0.0 : HUGE_VAL;
  return std::sqrt(difference / norm);
}

Buffer upload(const Device& device, const HostTensor& tensor);
HostTensor download(const Buffer& buffer);
std::vector<std::byte> download_bytes(const Buffer& buffer);

}  // namespace mixtape::testing
