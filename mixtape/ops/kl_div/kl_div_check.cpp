#include "mixtape/ops/kl_div/kl_div_check.h"

#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::HostTensor;
using testing::OpCheck;

OpCheck kl_div_check(const Device& device, DType teacher_dtype, DType dtype, std::int64_t rows,
                     std::int64_t cols, const oracle::KlForm& form) {
  const double scale = 2.0;
  const HostTensor teacher = testing::random_tensor(teacher_dtype, {rows, cols}, 2, scale);
  const Buffer t = upload(device, teacher);
  OpCheck check;
  check.name = str("kl_div ", teacher_dtype, " ", dtype, " ", rows, "x", cols, " T ", form.temperature, " k ",
                   form.k, form.rest_bucket ? " with rest" : "");
  check.inputs = {testing::random_tensor(dtype, {rows, cols}, 1, scale)};
  check.op = [t, form](const std::vector<Var>& v) { return kl_div(v[0], t, options_of(form)); };
  check.forward = [=](const auto& x) { return oracle::kl_div(teacher.values, x[0], cols, form); };
  check.complex_forward = [=](const auto& x) { return oracle::kl_div(teacher.values, x[0], cols, form); };
  check.backward = [=](const auto& x, const Doubles& dy) -> std::vector<Doubles> {
    return {oracle::kl_div_backward(teacher.values, x[0], cols, form, dy)};
  };
  // |z - max| is at most 12 standard deviations, its mean difference under p at most 4; |dloss| at most 4.
  const double spread = 12.0 * scale / form.temperature, mean_gap = 4.0 * scale / form.temperature;
  const double rest = form.rest_bucket ? 2.0 * (spread + 12.0) : 0.0;
  check.forward_bound = {1.0, (100.0 + 80.0 * mean_gap + 2.0 * spread + rest) * 0x1p-24};
  check.backward_bound = {2.0, (90.0 + 4.0 * spread + rest) * 0x1p-24 * 8.0 / form.temperature};
  check.prove_oracle = rows * cols <= 300;
  return check;
}

std::vector<OpCheck> kl_div_checks(const Device& device, DType dtype) {
  std::vector<OpCheck> checks;
  const auto add = [&](DType teacher, std::int64_t rows, std::int64_t cols, const oracle::KlForm& form) {
    checks.push_back(kl_div_check(device, teacher, dtype, rows, cols, form));
  };
  for (const std::int64_t cols : {1, 2, 3, 15, 16, 17, 33, 65, 129}) add(dtype, 3, cols, {1.5});
  for (const DType teacher : testing::kValueDtypes) {
    if (teacher == dtype) continue;
    add(teacher, 3, 70, {2.0});
    add(teacher, 3, 70, {2.0, 19, true});
  }
  add(dtype, 0, 5, {1.5});
  for (const bool rest : {false, true}) {
    add(dtype, 0, 5, {1.5, 2, rest});
    add(dtype, 2, 1, {1.5, 1, rest});
    add(dtype, 3, 33, {1.5, 1, rest});
    add(dtype, 3, 70, {2.0, 19, rest});
    add(dtype, 3, 40, {1.0, 40, rest});
  }
  return checks;
}

MIXTAPE_OP_CHECKS(kl_div, testing::kValueDtypes, kl_div_checks)

}  // namespace mixtape
