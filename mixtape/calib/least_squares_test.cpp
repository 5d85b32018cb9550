#include "mixtape/calib/least_squares.h"

#include <gtest/gtest.h>

#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/runtime/creation.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

// The op itself is proved where it lives; here: which importance it gets, and that values are as a file holds them.
TEST(LeastSquares, ChannelsThatMatterComeOutNearer) {
  const Device device = Device::cpu();
  const PlannedModule module{"m", "m.weight", {64, 64}, TensorKind::matrix, AffineParams{2, 64}, ""};
  const Buffer w = randn(device, {64, 64}, 3);
  std::vector<float> squares(64, 1.0f);
  squares[5] = 1000.0f;
  const InputStatistics inputs{{100}, Buffer::from(device, {64}, squares), Buffer()};
  std::vector<std::string> notes;
  const auto error = [&](const Method& method, const InputStatistics* statistics, std::size_t channel) {
    const QuantizedWeight q = method.fit({module, w, statistics, nullptr, DType::bf16, notes});
    for (const Buffer& b : {q.scales, q.biases}) {
      for (const float v : b.to_vector<float>()) EXPECT_EQ(v, static_cast<float>(bf16(v)));
    }
    CommandEncoder encoder(device);
    const Buffer decoded = device.alloc(DType::f32, w.shape());
    dequantize_affine_forward(encoder, q, decoded);
    encoder.commit_and_wait();
    const std::vector<float> a = w.to_vector<float>(), b = decoded.to_vector<float>();
    double sum = 0.0;
    for (std::size_t i = channel; i < a.size(); i += 64)
      sum += static_cast<double>(a[i] - b[i]) * static_cast<double>(a[i] - b[i]);
    return sum;
  };
  const double alike = error(least_squares(), nullptr, 5);
  EXPECT_LT(error(least_squares(), &inputs, 5), 0.05 * alike);
  EXPECT_EQ(error(least_squares({.weighted = false}), &inputs, 5), alike);
}

TEST(LeastSquares, NamesTheTensorThatIsNotFinite) {
  const Device device = Device::cpu();
  const PlannedModule module{"m", "m.weight", {2, 32}, TensorKind::matrix, AffineParams{4, 32}, ""};
  std::vector<float> values(64, 1.0f);
  values[40] = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::string> notes;
  MIXTAPE_EXPECT_ERROR(least_squares().fit({module, Buffer::from(device, {2, 32}, values), nullptr, nullptr,
                                            DType::f32, notes}),
                       ErrorCode::invalid_argument, "'m.weight': ");
}

}  // namespace
}  // namespace mixtape
