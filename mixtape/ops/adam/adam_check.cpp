#include "mixtape/ops/adam/adam_check.h"

#include <cmath>

#include "mixtape/ops/adam/adam.h"
#include "mixtape/ops/adam/adam_oracle.h"
#include "mixtape/ops/adam/adam_params.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

namespace {

constexpr AdamOptions kOptions{.lr = 0.05f,
                               .beta1 = 0.7f,
                               .beta2 = 0.8f,
                               .eps = 0.1f,
                               .weight_decay = 0.3f,
                               .step = 3,
                               .grad_scale = 0.25f};
constexpr float kUnit = 0.4f;

Buffer copy_of(const Var& v) {
  const Buffer b = v.tape().alloc(v.dtype(), v.shape());
  v.tape().encoder().copy(v.value(), b);
  return b;
}

}  // namespace

OpCheck adam_step_check(DType dtype, DType g_dtype, std::int64_t n) {
  OpCheck check;
  check.name = str("adam_step ", dtype, " g ", g_dtype, " ", n);
  testing::HostTensor v = testing::random_tensor(DType::f32, {n}, 4);
  for (double& value : v.values) value = std::abs(value);
  check.inputs = {testing::random_tensor(dtype, {n}, 1), testing::random_tensor(g_dtype, {n}, 2),
                  testing::random_tensor(DType::f32, {n}, 3), v};
  check.differentiable = {false, false, false, false};
  check.op = [](const std::vector<Var>& in) {
    const AdamTensor t{copy_of(in[0]), in[1].value(), copy_of(in[2]), copy_of(in[3]), kUnit};
    adam_step(in[0].tape().encoder(), {t}, kOptions);
    return in[0].tape().constant(t.p);
  };
  check.forward = [](const auto& in) {
    oracle::AdamState state{in[0], in[2], in[3]};
    oracle::adam_step(state, in[1], kOptions.step,
                      {kOptions.lr, kOptions.beta1, kOptions.beta2, kOptions.eps, kOptions.weight_decay,
                       kOptions.grad_scale, kUnit});
    return state.p;
  };
  // The larger term of m is below 5, its correction 1.6, the denominator 0.1 at least.
  const double largest_step = static_cast<double>(kOptions.lr * kUnit) * 5.0 * 1.6 / 0.1;
  check.forward_bound = {3.0, 12.0 * 0x1p-23 * largest_step};
  return check;
}

OpCheck sum_of_squares_check(DType dtype, std::int64_t n) {
  OpCheck check;
  check.name = str("sum_of_squares ", dtype, " ", n);
  check.inputs = {testing::random_tensor(dtype, {n}, 1)};
  check.differentiable = {false};
  check.op = [](const std::vector<Var>& v) {
    const Buffer out = v[0].tape().alloc(DType::f32, {1});
    sum_of_squares(v[0].tape().encoder(), {v[0].value()}, out);
    return v[0].tape().constant(out);
  };
  check.forward = [](const auto& v) -> Doubles {
    double sum = 0.0;
    for (const double x : v[0]) sum += x * x;
    return {sum};
  };
  check.forward_bound = {300.0, 0.0};  // 600 * 2^-24
  return check;
}

std::vector<OpCheck> adam_step_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks;
  for (const DType g : testing::kValueDtypes) {
    for (const std::int64_t n : {0, 1, 15, 16, 17, 100}) checks.push_back(adam_step_check(dtype, g, n));
  }
  return checks;
}

std::vector<OpCheck> sum_of_squares_checks(const Device&, DType dtype) {
  return {sum_of_squares_check(dtype, 0), sum_of_squares_check(dtype, 1), sum_of_squares_check(dtype, 63),
          sum_of_squares_check(dtype, 2 * kAdamBlock + 17)};
}

MIXTAPE_OP_CHECKS(adam_step, testing::kValueDtypes, adam_step_checks)
MIXTAPE_OP_CHECKS(sum_of_squares, testing::kValueDtypes, sum_of_squares_checks)

}  // namespace mixtape
