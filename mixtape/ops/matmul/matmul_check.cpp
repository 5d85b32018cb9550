#include "mixtape/ops/matmul/matmul_check.h"

#include <algorithm>

#include "mixtape/ops/matmul/matmul.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

OpCheck matmul_check(DType dtype, DType out, const oracle::MatmulShape& s, const Shape& a, const Shape& b) {
  OpCheck check;
  check.name = str("matmul ", dtype, "->", out, " ", a, s.trans_a ? "^T" : "", " ", b, s.trans_b ? "^T" : "");
  check.inputs = {testing::random_tensor(dtype, a, 1), testing::random_tensor(dtype, b, 2)};
  check.op = [=](const std::vector<Var>& v) { return matmul(v[0], v[1], s.trans_a, s.trans_b, out); };
  check.forward = [s](const auto& x) { return oracle::matmul(s, x[0], x[1]); };
  check.complex_forward = [s](const auto& x) { return oracle::matmul(s, x[0], x[1]); };
  check.backward = [s](const auto& x, const Doubles& dy) {
    return oracle::matmul_backward(s, x[0], x[1], dy);
  };
  // Products of standard normals are 0.64 in the mean: 4 covers the largest sums of magnitudes.
  const auto sums = [](double length) { return length * 0x1p-24 * 4.0 * length; };
  check.forward_bound = {1.0, sums(static_cast<double>(s.k))};
  check.backward_bound = {1.0, sums(static_cast<double>(std::max(s.m, s.n)))};
  check.prove_oracle = s.batch * s.m * s.n * s.k < 500;
  return check;
}

std::vector<OpCheck> matmul_layouts(DType dtype, DType out, std::int64_t m, std::int64_t n, std::int64_t k) {
  std::vector<OpCheck> checks;
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      checks.push_back(matmul_check(dtype, out, {1, m, n, k, trans_a, trans_b},
                                    trans_a ? Shape{k, m} : Shape{m, k},
                                    trans_b ? Shape{n, k} : Shape{k, n}));
    }
  }
  return checks;
}

std::vector<OpCheck> matmul_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks;
  const auto add = [&](const std::vector<OpCheck>& more) {
    checks.insert(checks.end(), more.begin(), more.end());
  };
  add(matmul_layouts(dtype, dtype, 0, 3, 2));
  add(matmul_layouts(dtype, dtype, 3, 2, 0));
  add(matmul_layouts(dtype, dtype, 1, 1, 1));
  add(matmul_layouts(dtype, dtype, 5, 7, 3));
  add(matmul_layouts(dtype, dtype, 1, 33, 64));
  add(matmul_layouts(dtype, dtype, 66, 35, 17));
  if (dtype != DType::f32) add(matmul_layouts(dtype, DType::f32, 66, 35, 17));
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      checks.push_back(matmul_check(dtype, dtype, {6, 5, 4, 3, trans_a, trans_b},
                                    trans_a ? Shape{2, 3, 3, 5} : Shape{2, 3, 5, 3},
                                    trans_b ? Shape{2, 3, 4, 3} : Shape{2, 3, 3, 4}));
    }
  }
  checks.push_back(matmul_check(dtype, dtype, {1, 6, 5, 4, false, true}, {2, 3, 4}, {5, 4}));
  checks.push_back(matmul_check(dtype, dtype, {1, 6, 5, 4, false, false}, {2, 3, 4}, {4, 5}));
  for (const std::int64_t k : {0, 4, 64}) {
    for (const DType out : {dtype, DType::f32}) {
      const OpCheck product = matmul_check(dtype, out, {1, 6, 5, k, false, true}, {2, 3, k}, {5, k});
      checks.push_back(testing::with_addend(
          product, testing::random_tensor(out, {2, 3, 5}, 3),
          [out](const std::vector<Var>& v) { return matmul(v[0], v[1], false, true, out, v[2]); }));
    }
  }
  return checks;
}

MIXTAPE_OP_CHECKS(matmul, testing::kValueDtypes, matmul_checks)

}  // namespace mixtape
