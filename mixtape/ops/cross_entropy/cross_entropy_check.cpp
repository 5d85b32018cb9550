#include "mixtape/ops/cross_entropy/cross_entropy_check.h"

#include "mixtape/ops/cross_entropy/cross_entropy.h"
#include "mixtape/ops/cross_entropy/cross_entropy_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

OpCheck cross_entropy_check(const Device& device, DType dtype, DType targets_dtype, std::int64_t rows,
                            std::int64_t cols, double scale) {
  std::vector<std::int64_t> targets;
  for (std::int64_t r = 0; r < rows; ++r) targets.push_back(r % 3 == 1 ? -1 : (r * 37 + 5) % cols);
  const Buffer ids = upload_targets(device, targets, targets_dtype);
  OpCheck check;
  check.name = str("cross_entropy ", dtype, " ", targets_dtype, " ", rows, "x", cols);
  check.inputs = {testing::random_tensor(dtype, {rows, cols}, 1, scale)};
  check.op = [ids](const std::vector<Var>& v) { return cross_entropy(v[0], ids); };
  check.forward = [targets](const auto& x) { return oracle::cross_entropy(x[0], targets); };
  check.complex_forward = [targets](const auto& x) { return oracle::cross_entropy(x[0], targets); };
  check.backward = [targets](const auto& x, const Doubles& dy) -> std::vector<Doubles> {
    return {oracle::cross_entropy_backward(x[0], targets, dy)};
  };
  // |x - max| is at most 12 standard deviations, |dloss| at most 4.
  const double spread = 12.0 * scale;
  check.forward_bound = {1.0, (80.0 + spread) * 0x1p-24};
  check.backward_bound = {2.0, (84.0 + 3.0 * spread) * 0x1p-24 * 4.0};
  check.prove_oracle = rows * cols <= 600;
  return check;
}

std::vector<OpCheck> cross_entropy_checks(const Device& device, DType dtype) {
  std::vector<OpCheck> checks = {cross_entropy_check(device, dtype, DType::u32, 0, 5, 2.0)};
  for (const std::int64_t cols : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 65, 127, 129})
    checks.push_back(cross_entropy_check(device, dtype, DType::u32, 4, cols, 2.0));
  checks.push_back(cross_entropy_check(device, dtype, DType::i32, 5, 19, 2.0));
  return checks;
}

MIXTAPE_OP_CHECKS(cross_entropy, testing::kValueDtypes, cross_entropy_checks)

}  // namespace mixtape
