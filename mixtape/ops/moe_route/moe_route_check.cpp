#include "mixtape/ops/moe_route/moe_route_check.h"

#include "mixtape/ops/moe_route/moe_route.h"
#include "mixtape/ops/moe_route/moe_route_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::HostTensor;
using testing::OpCheck;

// |logit - max| is at most 12, |dweights| at most 5.
OpCheck moe_route_check(DType dtype, std::int64_t tokens, std::int64_t experts, std::int64_t k,
                        bool normalise) {
  OpCheck check;
  check.name = str("moe_route ", dtype, " ", tokens, "x", experts, " k ", k, normalise ? " normalised" : "");
  check.inputs = {testing::random_tensor(dtype, {tokens, experts}, 1)};
  check.op = [=](const std::vector<Var>& v) { return moe_route(v[0], k, normalise).weights; };
  check.forward = [=](const auto& x) { return oracle::moe_route(x[0], experts, k, normalise); };
  check.complex_forward = [=](const auto& x) { return oracle::moe_route(x[0], experts, k, normalise); };
  check.backward = [=](const auto& x, const Doubles& dy) -> std::vector<Doubles> {
    return {oracle::moe_route_backward(x[0], dy, experts, k, normalise)};
  };
  const double growth = 24.0 + static_cast<double>(experts) / 16;
  check.forward_bound = {(8.0 + growth) / 2, 0.0};
  check.backward_bound = {1.0, (10.0 + growth + static_cast<double>(k)) * 0x1p-24 * 5.0};
  check.prove_oracle = tokens * experts <= 300;
  return check;
}

OpCheck moe_combine_check(const Device& device, DType dtype, std::int64_t tokens, std::int64_t k,
                          std::int64_t cols) {
  const HostTensor experts = testing::random_indices({tokens, k}, 7, 4);
  const std::vector<std::int64_t> inverse =
      oracle::moe_inverse({experts.values.begin(), experts.values.end()}, 4);
  OpCheck check;
  check.name = str("moe_combine ", dtype, " ", tokens, "x", k, "x", cols);
  check.inputs = {testing::random_tensor(dtype, {tokens * k, cols}, 1),
                  testing::random_tensor(DType::f32, {tokens, k}, 2)};
  check.op = [indices = upload(device, experts)](const std::vector<Var>& v) {
    return moe_combine(v[0], v[1], moe_plan(v[0].tape().encoder(), indices, 4));
  };
  check.forward = [=](const auto& v) { return oracle::moe_combine(v[0], v[1], inverse, k); };
  check.complex_forward = [=](const auto& v) { return oracle::moe_combine(v[0], v[1], inverse, k); };
  check.backward = [=](const auto& v, const Doubles& dy) {
    return oracle::moe_combine_backward(v[0], v[1], inverse, k, dy);
  };
  const auto d = static_cast<double>(cols);
  check.forward_bound = {0.5, static_cast<double>(k * k) * 0x1p-24 * 4.0};
  check.backward_bound = {1.0, (4.0 + d / 32) * 0x1p-24 * d};  // |x*dy| is 0.64 on average
  check.prove_oracle = tokens * k * cols <= 400;
  return check;
}

OpCheck moe_dispatch_check(const Device& device, DType dtype, std::int64_t tokens, std::int64_t k,
                           std::int64_t cols) {
  const HostTensor experts = testing::random_indices({tokens, k}, 7, 4);
  const std::vector<std::int64_t> inverse =
      oracle::moe_inverse({experts.values.begin(), experts.values.end()}, 4);
  OpCheck check;
  check.name = str("moe_dispatch ", dtype, " ", tokens, "x", k, "x", cols);
  check.inputs = {testing::random_tensor(dtype, {tokens, cols}, 1)};
  check.op = [indices = upload(device, experts)](const std::vector<Var>& v) {
    return moe_dispatch(v[0], moe_plan(v[0].tape().encoder(), indices, 4));
  };
  check.forward = [=](const auto& v) { return oracle::moe_dispatch(v[0], inverse, k, cols); };
  check.complex_forward = [=](const auto& v) { return oracle::moe_dispatch(v[0], inverse, k, cols); };
  check.backward = [=](const auto&, const Doubles& dy) -> std::vector<Doubles> {
    return {oracle::moe_dispatch_backward(dy, inverse, k, cols)};
  };
  check.forward_bound = {0.0, 0.0};
  check.backward_bound = {0.5, static_cast<double>(k * k) * 0x1p-24 * 4.0};
  check.prove_oracle = tokens * k * cols <= 400;
  return check;
}

std::vector<OpCheck> moe_route_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks = {moe_route_check(dtype, 0, 5, 2, true)};
  for (const bool normalise : {false, true}) {
    for (const std::int64_t experts : {1, 4, 16, 17, 40, 128}) {
      for (const std::int64_t k : {std::int64_t{1}, std::int64_t{2}, std::int64_t{8}, experts}) {
        if (k <= experts) checks.push_back(moe_route_check(dtype, 5, experts, k, normalise));
      }
    }
  }
  return checks;
}

std::vector<OpCheck> moe_combine_checks(const Device& device, DType dtype) {
  std::vector<OpCheck> checks = {
      moe_combine_check(device, dtype, 0, 2, 5), moe_combine_check(device, dtype, 7, 1, 5),
      moe_combine_check(device, dtype, 3, 2, 16), moe_combine_check(device, dtype, 5, 3, 17),
      moe_combine_check(device, dtype, 90, 8, 130)};
  for (const std::int64_t cols : {16, 17}) {
    checks.push_back(testing::with_addend(
        moe_combine_check(device, dtype, 5, 3, cols), testing::random_tensor(dtype, {5, cols}, 3),
        [experts = upload(device, testing::random_indices({5, 3}, 7, 4))](const std::vector<Var>& v) {
          return moe_combine(v[0], v[1], moe_plan(v[0].tape().encoder(), experts, 4), v[2]);
        }));
  }
  return checks;
}

std::vector<OpCheck> moe_dispatch_checks(const Device& device, DType dtype) {
  return {moe_dispatch_check(device, dtype, 0, 2, 5), moe_dispatch_check(device, dtype, 7, 1, 5),
          moe_dispatch_check(device, dtype, 3, 2, 16), moe_dispatch_check(device, dtype, 5, 3, 17),
          moe_dispatch_check(device, dtype, 90, 8, 130)};
}

MIXTAPE_OP_CHECKS(moe_route, testing::kValueDtypes, moe_route_checks)
MIXTAPE_OP_CHECKS(moe_dispatch, testing::kValueDtypes, moe_dispatch_checks)
MIXTAPE_OP_CHECKS(moe_combine, testing::kValueDtypes, moe_combine_checks)

}  // namespace mixtape
