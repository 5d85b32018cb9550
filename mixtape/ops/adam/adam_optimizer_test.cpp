#include "mixtape/ops/adam/adam_optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

class AdamOptimizerTest : public ::testing::TestWithParam<std::string> {
 protected:
  Var parameter(const std::vector<float>& values) {
    return tape_.parameter(Buffer::from(tape_.device(), {static_cast<std::int64_t>(values.size())}, values));
  }
  // The gradient of sum(c * v) for the constants c.
  void backward(const Var& v, const std::vector<float>& gradient) {
    tape_.backward(v, Buffer::from(tape_.device(), v.shape(), gradient));
  }
  std::vector<float> values(const Var& v) {
    tape_.encoder().commit_and_wait();
    return v.value().to_vector<float>();
  }

  Tape tape_{Device::open(GetParam())};
};

// One parameter of one element, in f64 by the formula.
double reference(double p, const std::vector<double>& gradients, double lr) {
  double m = 0.0, v = 0.0;
  for (std::size_t t = 1; t <= gradients.size(); ++t) {
    const double g = gradients[t - 1];
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    p -= lr * (m / (1.0 - std::pow(0.9, t))) / (std::sqrt(v / (1.0 - std::pow(0.999, t))) + 1e-8);
  }
  return p;
}

TEST_P(AdamOptimizerTest, FollowsTheFormula) {
  const Var a = parameter({1.0f}), b = parameter({-2.0f});
  Adam adam({a, b}, {.lr = 0.1f}, {1.0f, 0.5f});
  for (const float g : {0.3f, -0.7f, 0.2f}) {
    backward(a, {g});
    backward(b, {2.0f * g});
    adam.step();
    adam.zero_grad();
  }
  EXPECT_EQ(adam.steps(), 3);
  EXPECT_NEAR(values(a)[0], reference(1.0, {0.3, -0.7, 0.2}, 0.1), 1e-6);
  EXPECT_NEAR(values(b)[0], reference(-2.0, {0.6, -1.4, 0.4}, 0.05), 1e-6);
}

// After zero_grad and backward the gradient lies in another buffer: the old one must not be used.
TEST_P(AdamOptimizerTest, ReadsTheGradientAfreshInEachStep) {
  const Var v = parameter({1.0f});
  Adam adam({v}, {.lr = 0.1f});
  backward(v, {1.0f});
  const Buffer held = v.grad();
  adam.step();
  adam.zero_grad();
  backward(v, {-3.0f});
  adam.step();
  EXPECT_NEAR(values(v)[0], reference(1.0, {1.0, -3.0}, 0.1), 1e-6);
  EXPECT_EQ(held.to_vector<float>()[0], 1.0f);
}

TEST_P(AdamOptimizerTest, MomentsInBf16FollowTheFormula) {
  const Var v = parameter({1.0f});
  Adam adam({v}, {.lr = 0.1f}, {}, DType::bf16);
  for (const float g : {1.0f, -3.0f}) {
    adam.zero_grad();
    backward(v, {g});
    adam.step();
  }
  EXPECT_EQ(adam.moments()[0].second.dtype(), DType::bf16);
  EXPECT_NEAR(values(v)[0], reference(1.0, {1.0, -3.0}, 0.1), 0.2 * 0x1p-7);  // moments within a unit
}

TEST_P(AdamOptimizerTest, ParameterWithoutGradientStays) {
  const Var moves = parameter({1.0f}), stays = parameter({5.0f});
  Adam adam({moves, stays}, {.lr = 0.1f, .weight_decay = 0.5f});
  backward(moves, {1.0f});
  adam.step();
  EXPECT_NE(values(moves)[0], 1.0f);
  EXPECT_EQ(values(stays)[0], 5.0f);
  EXPECT_EQ(adam.moments()[1].first.to_vector<float>()[0], 0.0f);
}

TEST_P(AdamOptimizerTest, GradientNormIsOfAllParameters) {
  const Var a = parameter({0.0f, 0.0f}), b = parameter({0.0f});
  const Adam adam({a, b});
  EXPECT_EQ(adam.gradient_norm(), 0.0);
  backward(a, {1.0f, 2.0f});
  backward(b, {2.0f});
  EXPECT_FLOAT_EQ(static_cast<float>(adam.gradient_norm()), 3.0f);
}

TEST_P(AdamOptimizerTest, RefusesWhatItCannotTrain) {
  const Var a = parameter({1.0f});
  const Var constant = tape_.constant(a.value());
  const ErrorCode code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(Adam({}), code, "found no parameters");
  MIXTAPE_EXPECT_ERROR(Adam({a, constant}), code, "requires no gradient");
  MIXTAPE_EXPECT_ERROR(Adam({a, a}), code, "parameters 0 and 1 share memory");
  MIXTAPE_EXPECT_ERROR(Adam({a}, {}, {1.0f, 2.0f}), code, "found 2 units, expected 1");
  MIXTAPE_EXPECT_ERROR(Adam({a}, {}, {}, DType::f16), code, "moments are f16, expected f32 or bf16");
  Adam adam({a}, {.lr = NAN});
  backward(a, {1.0f});
  MIXTAPE_EXPECT_ERROR(adam.step(), code, "lr");
  EXPECT_EQ(adam.steps(), 0);
}

INSTANTIATE_TEST_SUITE_P(Devices, AdamOptimizerTest, ::testing::ValuesIn(testing::test_device_names()));

}  // namespace
}  // namespace mixtape
