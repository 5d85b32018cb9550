#include "mixtape/ops/sampling/sampling_check.h"

#include "mixtape/core/random.h"
#include "mixtape/ops/sampling/sampling_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

OpCheck argmax_check(DType dtype, std::int64_t rows, std::int64_t cols) {
  OpCheck check;
  check.name = str("argmax ", dtype, " ", rows, "x", cols);
  check.inputs = {testing::random_tensor(dtype, {rows, cols}, 1)};
  check.differentiable = {false};
  check.op = [](const std::vector<Var>& v) { return argmax(v[0]); };
  check.forward = [cols](const auto& x) { return oracle::argmax(x[0], cols); };
  return check;
}

OpCheck sample_check(DType dtype, std::int64_t rows, std::int64_t cols, const SamplingOptions& options) {
  OpCheck check;
  check.name = str("sample ", dtype, " ", rows, "x", cols, " temperature ", options.temperature, " top_p ",
                   options.top_p, " top_k ", options.top_k, " min_p ", options.min_p);
  check.inputs = {testing::random_tensor(dtype, {rows, cols}, 1, 2.0)};
  check.differentiable = {false};
  check.op = [options](const std::vector<Var>& v) { return sample(v[0], options); };
  check.forward = [cols, options](const auto& x) {
    Doubles indices;
    for (auto row = x[0].begin(); row != x[0].end(); row += cols) {
      const double u = uniform(options.seed, (indices.size() << 32) + options.step);
      indices.push_back(oracle::sample({row, row + cols}, options.temperature,
                                       {options.top_p, options.top_k, options.min_p}, u));
    }
    return indices;
  };
  return check;
}

std::vector<OpCheck> argmax_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks = {argmax_check(dtype, 0, 5)};
  for (const std::int64_t cols : {1, 2, 31, 32, 33, 1024, 1025})
    checks.push_back(argmax_check(dtype, cols < 1024 ? 9 : 2, cols));
  return checks;
}

std::vector<OpCheck> sample_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks = {sample_check(dtype, 0, 5, {1.0, 1.0, 5, 17})};
  for (const std::int64_t cols : {1, 2, 33, 300})
    checks.push_back(sample_check(dtype, 6, cols, {1.0, 1.0, 5, 17}));
  checks.push_back(sample_check(dtype, 6, 33, {0.4, 0.9, 6, 18}));
  checks.push_back(sample_check(dtype, 3, 150, {2.0, 0.3, 7, 19}));
  checks.push_back(sample_check(dtype, 6, 33, {1.5, 1.0, 8, 20, 5}));
  checks.push_back(sample_check(dtype, 6, 33, {1.5, 1.0, 9, 21, 0, 0.1}));
  checks.push_back(sample_check(dtype, 6, 150, {2.0, 0.8, 10, 22, 20, 0.05}));
  return checks;
}

MIXTAPE_OP_CHECKS(argmax, testing::kValueDtypes, argmax_checks)
MIXTAPE_OP_CHECKS(sample, testing::kValueDtypes, sample_checks)

}  // namespace mixtape
