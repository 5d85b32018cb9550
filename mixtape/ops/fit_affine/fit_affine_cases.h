// What both test programs of fit_affine take.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "mixtape/ops/fit_affine/fit_affine_check.h"
#include "mixtape/ops/quantize/quantize.h"

namespace mixtape {

inline Buffer buffer_of(const Device& device, const testing::HostTensor& t) {
  return t.values.empty() ? Buffer() : testing::upload(device, t);
}

inline testing::Doubles decoded(const QuantizedWeight& q) {
  CommandEncoder encoder(q.codes.device());
  const Shape shape = dequantized_shape("test", q);
  const Buffer w = q.codes.device().alloc(DType::f32, shape);
  dequantize_affine_forward(encoder, q, w);
  encoder.commit_and_wait();
  return testing::download(w).values;
}

struct Weights {
  std::string name;
  testing::HostTensor w, importance;
};

inline testing::HostTensor f32_tensor(const Shape& shape, const std::function<double(std::size_t)>& value) {
  testing::Doubles values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(i);
  return testing::make_tensor(DType::f32, shape, values);
}

// Groups of 32, 64 and 128 that have nothing, little or far too much in them.
inline std::vector<Weights> degenerate_weights() {
  const Shape shape{3, 128};
  const testing::HostTensor normal = testing::random_tensor(DType::f32, shape, 1), none{DType::f32, {0}, {}};
  const testing::HostTensor h = random_importance({128}, 2);
  const auto with = [&](const std::function<double(std::size_t, double)>& change) {
    return f32_tensor(shape, [&](std::size_t i) { return change(i, normal.values[i]); });
  };
  const auto h_with = [&](const std::function<double(std::size_t, double)>& change) {
    return f32_tensor({128}, [&](std::size_t i) { return change(i, h.values[i]); });
  };
  return {
      {"zeros", with([](std::size_t, double) { return 0.0; }), h},
      {"constant", with([](std::size_t i, double) { return i < 128   ? 0.7
                                                           : i < 256 ? -9.1
                                                                     : 3e-9; }), h},
      {"all but constant", with([](std::size_t, double v) { return 5.0 + 1e-6 * v; }), none},
      {"outlier", with([](std::size_t i, double v) { return i % 32 == 13 ? 100.0 : 0.01 * v; }), none},
      {"outlier of no importance",
       with([](std::size_t i, double v) { return i % 32 == 13 ? 100.0 : 0.01 * v; }),
       h_with([](std::size_t i, double v) { return i % 32 == 13 ? 0.0 : v; })},
      {"1e30 among ones", with([](std::size_t i, double v) { return i % 32 == 5 ? -1e30 : v; }), none},
      {"1e30 of no importance", with([](std::size_t i, double v) { return i % 32 == 5 ? -1e30 : v; }),
       h_with([](std::size_t i, double v) { return i % 32 == 5 ? 0.0 : v; })},
      {"1e-30 everywhere", with([](std::size_t, double v) { return 1e-30 * v; }), h},
      {"subnormal", with([](std::size_t, double v) { return 1e-41 * v; }), h},
      {"1e38", with([](std::size_t, double v) { return 3e37 * v; }), none},
      {"two values", with([](std::size_t i, double) { return i % 3 == 0 ? 1.5 : -0.25; }), h},
      {"negative", with([](std::size_t, double v) { return -4.0 - v * v; }), h},
      {"no importance at all", normal, h_with([](std::size_t, double) { return 0.0; })},
      {"importance of one channel", normal,
       h_with([](std::size_t i, double) { return i == 40 ? 2.0 : 0.0; })},
      {"importance over 60 decades", normal,
       h_with([](std::size_t i, double) { return std::pow(10.0, static_cast<double>(i % 61) - 30.0); })},
      {"tiny importance", normal, h_with([](std::size_t, double v) { return 1e-38 * v; })},
      {"huge importance", normal, h_with([](std::size_t, double v) { return 1e37 * v; })},
  };
}

}  // namespace mixtape
