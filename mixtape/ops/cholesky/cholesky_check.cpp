#include "mixtape/ops/cholesky/cholesky_check.h"

#include "mixtape/ops/cholesky/cholesky_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

OpCheck cholesky_check(std::int64_t batch, std::int64_t size) {
  OpCheck check;
  check.name = str("cholesky ", batch, "x", size, "x", size);
  check.inputs = {random_spd(batch, size, 1)};
  check.differentiable = {false};
  check.op = [](const std::vector<Var>& v) {
    Tape& tape = v[0].tape();
    const Buffer factor = tape.alloc(DType::f32, v[0].shape());
    cholesky_forward(tape.encoder(), v[0].value(), factor, tape.alloc(DType::f32, {v[0].shape()[0]}));
    return tape.constant(factor);
  };
  check.forward = [size](const auto& x) { return oracle::cholesky(x[0], size).factor; };
  // The factor of such a matrix moves by no more than what h errs by, whose sums are below 4.
  check.forward_bound = {1.0, 4.0 * static_cast<double>(size + 4) * 0x1p-24};
  return check;
}

std::vector<OpCheck> cholesky_checks(const Device&, DType) {
  std::vector<OpCheck> checks = {cholesky_check(0, 5)};
  for (const std::int64_t size : {1, 2, 33, 63, 64, 65, 130}) checks.push_back(cholesky_check(2, size));
  return checks;
}

constexpr DType kCholeskyDtypes[] = {DType::f32};
MIXTAPE_OP_CHECKS(cholesky, kCholeskyDtypes, cholesky_checks)

}  // namespace mixtape
