#include "mixtape/ops/top_k/top_k_check.h"

#include "mixtape/ops/top_k/top_k.h"
#include "mixtape/ops/top_k/top_k_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

OpCheck top_k_check(DType dtype, const Shape& shape, std::int64_t k) {
  const std::int64_t cols = shape.cols();
  OpCheck check;
  check.name = str("top_k ", dtype, shape, " k ", k);
  check.inputs = {testing::random_tensor(dtype, shape, 1)};
  check.op = [k](const std::vector<Var>& v) { return top_k(v[0], k).values; };
  check.forward = [=](const auto& x) { return oracle::top_k(x[0], cols, k); };
  check.complex_forward = [=](const auto& x) { return oracle::top_k(x[0], cols, k); };
  check.backward = [=](const auto& x, const Doubles& dy) -> std::vector<Doubles> {
    return {oracle::top_k_backward(x[0], dy, cols, k)};
  };
  check.forward_bound = {0.0, 0.0};
  check.backward_bound = {0.0, 0.0};
  check.prove_oracle = shape.numel() <= 300;
  return check;
}

std::vector<OpCheck> top_k_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks = {top_k_check(dtype, {0, 5}, 2)};
  for (const std::int64_t cols : {1, 2, 15, 16, 17, 33, 128}) {
    for (const std::int64_t k : {1, 2, 8, 16, 17, 128}) {
      if (k <= cols) checks.push_back(top_k_check(dtype, {2, 2, cols}, k));
    }
  }
  return checks;
}

MIXTAPE_OP_CHECKS(top_k, testing::kValueDtypes, top_k_checks)

}  // namespace mixtape
