#include "mixtape/ops/elementwise/select_check.h"

#include "mixtape/ops/elementwise/elementwise_oracle.h"
#include "mixtape/ops/elementwise/select.h"
#include "mixtape/ops/layout/layout.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

namespace {

bool holds(Comparison op, double a, double b) {
  switch (op) {
    case Comparison::less:
      return a < b;
    case Comparison::less_equal:
      return a <= b;
    case Comparison::greater:
      return a > b;
    case Comparison::greater_equal:
      return a >= b;
    case Comparison::equal:
      return a == b;
    case Comparison::not_equal:
      return a != b;
  }
  return false;
}

// Few different values, so that many are equal.
OpCheck compare_check(Comparison op, DType dtype, const Shape& a, const Shape& b) {
  const Shape y = broadcast_shape("compare", a, b);
  const auto at_a = oracle::broadcast_places(a.dims(), y.dims()),
             at_b = oracle::broadcast_places(b.dims(), y.dims());
  OpCheck check;
  check.name = str(name(op), " ", dtype, a, " ", b);
  check.inputs = {testing::random_indices(a, 3, 4, dtype), testing::random_indices(b, 4, 4, dtype)};
  check.differentiable = {false, false};
  check.op = [op](const std::vector<Var>& v) { return compare(op, v[0], v[1]); };
  check.forward = [=](const auto& v) {
    Doubles found;
    for (std::size_t i = 0; i < at_a.size(); ++i)
      found.push_back(holds(op, v[0][at_a[i]], v[1][at_b[i]]) ? 1.0 : 0.0);
    return found;
  };
  check.forward_bound = {0.0, 0.0};
  return check;
}

OpCheck where_check(DType dtype, const Shape& mask, const Shape& a, const Shape& b) {
  const Shape y = broadcast_shape("where", broadcast_shape("where", a, b), mask);
  const auto places = [&](const Shape& of) { return oracle::broadcast_places(of.dims(), y.dims()); };
  const auto at_mask = places(mask), at_a = places(a), at_b = places(b);
  OpCheck check;
  check.name = str("where ", dtype, mask, " ", a, " ", b);
  check.inputs = {testing::random_indices(mask, 5, 3, DType::u8), testing::random_tensor(dtype, a, 6),
                  testing::random_tensor(dtype, b, 7)};
  check.op = [](const std::vector<Var>& v) { return where(v[0], v[1], v[2]); };
  check.forward = [=](const auto& v) {
    Doubles chosen;
    for (std::size_t i = 0; i < at_a.size(); ++i)
      chosen.push_back(v[0][at_mask[i]] != 0.0 ? v[1][at_a[i]] : v[2][at_b[i]]);
    return chosen;
  };
  check.backward = [=](const auto& v, const Doubles& dy) -> std::vector<Doubles> {
    Doubles da(v[1].size(), 0.0), db(v[2].size(), 0.0);
    for (std::size_t i = 0; i < dy.size(); ++i)
      (v[0][at_mask[i]] != 0.0 ? da[at_a[i]] : db[at_b[i]]) += dy[i];
    return {{}, da, db};
  };
  check.forward_bound = {0.0, 0.0};
  const auto repeats = static_cast<double>(y.numel() / std::min(a.numel(), b.numel()));
  check.backward_bound = {0.51, repeats == 1.0 ? 0.0 : (8.0 + repeats / 16.0) * 0x1p-24 * 4.0 * repeats};
  return check;
}

}  // namespace

std::vector<OpCheck> compare_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks;
  for (const Comparison op : {Comparison::less, Comparison::less_equal, Comparison::greater,
                              Comparison::greater_equal, Comparison::equal, Comparison::not_equal}) {
    checks.push_back(compare_check(op, dtype, {3, 33}, {3, 33}));
    checks.push_back(compare_check(op, dtype, {4, 5}, {1}));
  }
  checks.push_back(compare_check(Comparison::less, dtype, {3, 1}, {2, 1, 4}));
  checks.push_back(compare_check(Comparison::less, dtype, {0, 5}, {5}));
  return checks;
}

std::vector<OpCheck> where_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks = {
      where_check(dtype, {3, 33}, {3, 33}, {3, 33}), where_check(dtype, {2, 1}, {3}, {2, 3}),
      where_check(dtype, {4, 5}, {1}, {4, 5}), where_check(dtype, {5}, {4, 1}, {1})};
  checks.push_back(testing::empty_batch_check(
      "where",
      {testing::random_indices({0, 5}, 5, 3, DType::u8), testing::random_tensor(dtype, {0, 5}, 6),
       testing::random_tensor(dtype, {5}, 7)},
      checks[0].op));
  checks.back().differentiable = {false, true, true};
  return checks;
}

constexpr DType kComparable[] = {DType::f32, DType::bf16, DType::f16, DType::i32,
                                 DType::u32, DType::u8,   DType::u16};
MIXTAPE_OP_CHECKS(compare, kComparable, compare_checks)
MIXTAPE_OP_CHECKS(where, testing::kValueDtypes, where_checks)

}  // namespace mixtape
