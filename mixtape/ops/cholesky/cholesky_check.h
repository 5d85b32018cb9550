// The cases that cholesky is checked with.
#pragma once

#include <vector>

#include "mixtape/ops/cholesky/cholesky.h"
#include "mixtape/testing/op_check.h"

namespace mixtape {

// batch matrices X^T X / (2 size) + ridge * I for normal X [2 size, size]: eigenvalues from ridge to ridge + 3.
inline testing::HostTensor random_spd(std::int64_t batch, std::int64_t size, std::uint64_t seed,
                                      double ridge = 1.0) {
  const std::int64_t samples = 2 * size;
  const testing::Doubles x = testing::random_tensor(DType::f32, {batch, samples, size}, seed).values;
  testing::Doubles h;
  for (std::int64_t i = 0; i < batch * size; ++i) {
    for (std::int64_t j = 0; j < size; ++j) {
      double sum = 0.0;
      for (std::int64_t s = 0; s < samples; ++s) {
        const std::int64_t row = (i / size * samples + s) * size;
        sum += x[row + i % size] * x[row + j];
      }
      h.push_back(sum / static_cast<double>(samples) + (i % size == j ? ridge : 0.0));
    }
  }
  return testing::make_tensor(DType::f32, {batch, size, size}, h);
}

testing::OpCheck cholesky_check(std::int64_t batch, std::int64_t size);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> cholesky_checks(const Device& device, DType dtype);

}  // namespace mixtape
