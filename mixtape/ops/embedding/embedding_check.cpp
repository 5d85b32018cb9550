#include "mixtape/ops/embedding/embedding_check.h"

#include "mixtape/ops/embedding/embedding.h"
#include "mixtape/ops/embedding/embedding_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::HostTensor;
using testing::OpCheck;

OpCheck embedding_check(const Device& device, DType dtype, std::int64_t rows, std::int64_t hidden,
                        const HostTensor& ids) {
  OpCheck check;
  check.name = str("embedding ", dtype, " ", rows, "x", hidden, " ids ", ids.dtype, ids.shape);
  check.inputs = {testing::random_tensor(dtype, {rows, hidden}, 1)};
  check.op = [b = upload(device, ids)](const std::vector<Var>& v) { return embedding(v[0], b); };
  check.forward = [=](const auto& x) { return oracle::embedding(x[0], ids.values, hidden); };
  check.complex_forward = [=](const auto& x) { return oracle::embedding(x[0], ids.values, hidden); };
  check.backward = [=](const auto&, const Doubles& dy) -> std::vector<Doubles> {
    return {oracle::embedding_backward(ids.values, dy, rows, hidden)};
  };
  const auto n = static_cast<double>(ids.values.size());
  check.forward_bound = {0.0, 0.0};
  check.backward_bound = {0.5, n * (std::min(n, 128.0) + n / 128) * 0x1p-24};
  check.prove_oracle = rows * hidden <= 200;
  return check;
}

std::vector<OpCheck> embedding_checks(const Device& device, DType dtype) {
  std::vector<OpCheck> checks = {embedding_check(device, dtype, 5, 3, testing::random_indices({2, 0}, 3, 5))};
  for (const std::int64_t hidden : {1, 3, 16, 17, 33})
    checks.push_back(embedding_check(device, dtype, 5, hidden, testing::random_indices({2, 4}, 3, 5)));
  checks.push_back(embedding_check(device, dtype, 7, 20, testing::random_indices({6}, 3, 7, DType::i32)));
  checks.push_back(embedding_check(device, dtype, 1, 300, testing::random_indices({700}, 3, 1)));
  return checks;
}

MIXTAPE_OP_CHECKS(embedding, testing::kValueDtypes, embedding_checks)

}  // namespace mixtape
