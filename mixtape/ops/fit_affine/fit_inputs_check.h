// Weights and importance for the checks of fits, and what fits are measured by.
#pragma once

#include <cmath>
#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

// Values with the tails of Student's t with three degrees of freedom.
inline testing::HostTensor heavy_tailed_tensor(const Shape& shape, std::uint64_t seed) {
  testing::HostTensor t = testing::random_tensor(DType::f32, shape, seed);
  std::vector<testing::HostTensor> squares;
  for (const std::uint64_t s : {1, 2, 3})
    squares.push_back(testing::random_tensor(DType::f32, shape, seed + s));
  for (std::size_t i = 0; i < t.values.size(); ++i) {
    double chi = 0.0;
    for (const testing::HostTensor& x : squares) chi += x.values[i] * x.values[i] / 3.0;
    t.values[i] /= std::sqrt(chi);
  }
  return testing::make_tensor(DType::f32, shape, t.values);
}

// exp of normal values: an input channel's mean square.
inline testing::HostTensor random_importance(const Shape& shape, std::uint64_t seed) {
  testing::HostTensor t = testing::random_tensor(DType::f32, shape, seed);
  for (double& v : t.values) v = std::exp(v);
  return testing::make_tensor(DType::f32, shape, t.values);
}

// Per group, of the f32 values that the codes decode to; h [cols] or [experts, cols].
inline testing::Doubles group_errors(const testing::Doubles& w, const testing::Doubles& h,
                                     const testing::Doubles& decoded, std::int64_t cols,
                                     std::int64_t group_size) {
  const auto experts = h.size() / static_cast<std::size_t>(cols);
  const std::size_t per_expert = w.size() / experts;
  testing::Doubles errors(w.size() / static_cast<std::size_t>(group_size));
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double r = w[i] - decoded[i];
    errors[i / static_cast<std::size_t>(group_size)] +=
        h[i / per_expert * static_cast<std::size_t>(cols) + i % static_cast<std::size_t>(cols)] * r * r;
  }
  return errors;
}

}  // namespace mixtape
