#include "mixtape/ops/elementwise/elementwise_check.h"

#include <algorithm>
#include <cmath>

#include "mixtape/ops/elementwise/elementwise_oracle.h"
#include "mixtape/ops/layout/layout.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Bound;
using testing::Doubles;
using testing::HostTensor;
using testing::largest;
using testing::OpCheck;

namespace {

Var call(Unary op, const Var& x, float factor) {
  switch (op) {
    case Unary::scale:
      return scale(x, factor);
    case Unary::exp:
      return exp(x);
    case Unary::log:
      return log(x);
    case Unary::sqrt:
      return sqrt(x);
    case Unary::rsqrt:
      return rsqrt(x);
    case Unary::sigmoid:
      return sigmoid(x);
    case Unary::tanh:
      return tanh(x);
    case Unary::gelu:
      return gelu(x);
    case Unary::silu:
      return silu(x);
    case Unary::softcap:
      return softcap(x, factor);
    case Unary::shift:
      return static_cast<double>(factor) + x;
    case Unary::divide:
      return x / static_cast<double>(factor);
    case Unary::reciprocal:
      return static_cast<double>(factor) / x;
    case Unary::power:
      return pow(x, static_cast<double>(factor));
    case Unary::relu:
      return relu(x);
    case Unary::abs:
      return abs(x);
  }
  return x;
}

Var call(Binary op, const Var& a, const Var& b) {
  switch (op) {
    case Binary::add:
      return a + b;
    case Binary::sub:
      return a - b;
    case Binary::mul:
      return a * b;
    case Binary::div:
      return a / b;
    case Binary::maximum:
      return maximum(a, b);
    case Binary::minimum:
      return minimum(a, b);
    case Binary::pow:
      return pow(a, b);
  }
  return a;
}

Bound backward_bound(Unary op, DType dtype, double max_x) {
  const bool cancels = op == Unary::sigmoid || op == Unary::tanh || op == Unary::softcap ||
                       op == Unary::silu || op == Unary::gelu;
  const double units = op == Unary::gelu ? unary_bound(op, max_x).units : op == Unary::power ? 8.0 : 4.0;
  return {units, cancels ? 2.0 * epsilon(dtype) * 4.0 : 0.0};  // |dy| < 4
}

HostTensor positive(HostTensor x) {
  for (double& v : x.values) v = std::abs(v) + 0.25;
  return testing::make_tensor(x.dtype, x.shape, x.values);
}

// No value on a limit: differences to both sides of it see half of the gradient.
HostTensor without(HostTensor x, double least, double most) {
  for (double& v : x.values) v = v == least || v == most ? 0.0 : v;
  return testing::make_tensor(x.dtype, x.shape, x.values);
}

}  // namespace

Bound unary_bound(Unary op, double max_x) {
  const double u = oracle::kGeluFactor * (max_x + 0.044715 * max_x * max_x * max_x);
  switch (op) {
    case Unary::scale:
    case Unary::sqrt:
    case Unary::shift:
    case Unary::divide:
    case Unary::reciprocal:
      return {0.5, 0.0};
    case Unary::relu:
    case Unary::abs:
      return {0.0, 0.0};
    case Unary::rsqrt:
      return {1.0, 0.0};
    case Unary::exp:
      return {2.0, 0.0};
    case Unary::log:
      return {2.0, 0.0};
    case Unary::sigmoid:
      return {2.1, 0.0};
    case Unary::silu:
      return {3.0, 0.0};
    case Unary::tanh:
    case Unary::softcap:
    case Unary::power:
      return {4.0, 0.0};
    case Unary::gelu:
      return {4.0 + 8.0 * u, 0.0};
  }
  return {};
}

OpCheck unary_check(Unary op, DType dtype, const Shape& shape, float factor) {
  const bool wants_positive = op == Unary::log || op == Unary::sqrt || op == Unary::rsqrt ||
                              op == Unary::power || op == Unary::reciprocal;
  HostTensor x = testing::random_tensor(dtype, shape, 5, 1.5);
  if (wants_positive) x = positive(x);
  OpCheck check;
  check.name = str(name(op), " ", dtype, shape);
  check.inputs = {x};
  check.op = [=](const std::vector<Var>& v) { return call(op, v[0], factor); };
  const auto each = [=](const auto& values) {
    auto y = values;
    for (auto& v : y) v = oracle::unary_value(op, v, factor);
    return y;
  };
  check.forward = [=](const auto& v) { return each(v[0]); };
  check.complex_forward = [=](const auto& v) { return each(v[0]); };
  check.backward = [=](const auto& v, const Doubles& dy) -> std::vector<Doubles> {
    Doubles dx = dy;
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] *= oracle::unary_slope(op, v[0][i], factor);
    return {dx};
  };
  check.forward_bound = testing::rounded_once(dtype, unary_bound(op, largest(x.values)));
  check.backward_bound = backward_bound(op, dtype, largest(x.values));
  return check;
}

OpCheck binary_check(Binary op, DType dtype, const Shape& a, const Shape& b, std::uint64_t seed) {
  OpCheck check;
  check.name = str(name(op), " ", dtype, a, " ", b);
  check.inputs = {testing::random_tensor(dtype, a, seed),
                  testing::random_tensor(dtype, b, seed + 1, op == Binary::pow ? 0.7 : 1.0)};
  if (op == Binary::div) check.inputs[1] = positive(check.inputs[1]);
  if (op == Binary::pow) check.inputs[0] = positive(check.inputs[0]);
  const Shape y = broadcast_shape(name(op), a, b);
  const oracle::Places at{oracle::broadcast_places(a.dims(), y.dims()),
                          oracle::broadcast_places(b.dims(), y.dims())};
  check.op = [=](const std::vector<Var>& v) { return call(op, v[0], v[1]); };
  check.forward = [=](const auto& v) { return oracle::binary(op, v[0], v[1], at); };
  check.complex_forward = [=](const auto& v) { return oracle::binary(op, v[0], v[1], at); };
  check.backward = [=](const auto& v, const Doubles& dy) {
    return oracle::binary_backward(op, v[0], v[1], dy, at);
  };
  check.forward_bound = testing::rounded_once(dtype, {op == Binary::pow ? 4.0 : 0.5, 0.0});
  // What is summed over copies: |dy| < 4. Where an operand is expanded, the terms are rounded first.
  const auto repeats = static_cast<double>(y.numel() / std::min(a.numel(), b.numel()));
  const double terms =
      4.0 * oracle::largest_slope_sum(op, check.inputs[0].values, check.inputs[1].values, at);
  const double growth = (64.0 + repeats / 64.0) * 0x1p-24 + 0.5 * epsilon(dtype);
  check.backward_bound = {op == Binary::pow ? 8.0 : 4.0, repeats == 1.0 ? 0.0 : growth * terms};
  check.prove_oracle = a.numel() + b.numel() <= 600;
  return check;
}

std::vector<OpCheck> unary_checks(Unary op, DType dtype) {
  return {unary_check(op, dtype, {1}), unary_check(op, dtype, {2, 3, 33}), unary_check(op, dtype, {0, 5})};
}

std::vector<OpCheck> binary_checks(Binary op, DType dtype) {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{1}, {1}},    {{4, 9}, {4, 9}},       {{3, 5, 17}, {17}},  {{17}, {3, 5, 17}}, {{2, 3, 4}, {3, 4}},
      {{6, 1}, {1}}, {{1, 8}, {8}},          {{8}, {2, 1, 8}},    {{4, 9}, {4, 1}},   {{4, 1}, {1, 9}},
      {{4, 9}, {1}}, {{2, 1, 5}, {2, 3, 1}}, {{1, 1, 8}, {4, 8}}, {{3, 1}, {2, 3, 4}}};
  std::vector<OpCheck> checks;
  for (const auto& [a, b] : shapes) checks.push_back(binary_check(op, dtype, a, b));
  checks.push_back(testing::empty_batch_check(
      name(op), {testing::random_tensor(dtype, {0, 5}, 1), testing::random_tensor(dtype, {5}, 2)},
      [op](const std::vector<Var>& v) { return call(op, v[0], v[1]); }));
  return checks;
}

namespace {

template <Unary op>
std::vector<OpCheck> checks_of(const Device&, DType dtype) {
  return unary_checks(op, dtype);
}
// Of two operands, and of one and a number.
template <Binary op, Unary... with_number>
std::vector<OpCheck> checks_of(const Device&, DType dtype) {
  std::vector<OpCheck> checks = binary_checks(op, dtype);
  (checks.push_back(unary_check(with_number, dtype, {2, 3, 33})), ...);
  return checks;
}

std::vector<OpCheck> clamp_checks(const Device&, DType dtype) {
  OpCheck check;
  check.name = str("clamp ", dtype);
  constexpr double least = -0.5, most = 0.75;
  check.inputs = {without(testing::random_tensor(dtype, {2, 3, 33}, 5), least, most)};
  check.op = [=](const std::vector<Var>& v) { return clamp(v[0], least, most); };
  check.forward = [=](const auto& v) {
    Doubles y = v[0];
    for (double& value : y) value = std::clamp(value, least, most);
    return y;
  };
  check.backward = [=](const auto& v, Doubles dy) -> std::vector<Doubles> {
    for (std::size_t i = 0; i < dy.size(); ++i) dy[i] *= v[0][i] >= least && v[0][i] <= most ? 1.0 : 0.0;
    return {dy};
  };
  check.forward_bound = {0.0, 0.0};
  check.backward_bound = {0.0, 0.0};
  return {check, testing::empty_batch_check("clamp", {testing::random_tensor(dtype, {0, 5}, 1)}, check.op)};
}

std::vector<OpCheck> neg_checks(const Device&, DType dtype) {
  OpCheck check;
  check.name = str("neg ", dtype);
  check.inputs = {testing::random_tensor(dtype, {2, 3, 33}, 5)};
  check.op = [](const std::vector<Var>& v) { return neg(v[0]); };
  const auto negated = [](auto values) {
    for (auto& v : values) v = -v;
    return values;
  };
  check.forward = [=](const auto& v) { return negated(v[0]); };
  check.complex_forward = [=](const auto& v) { return negated(v[0]); };
  check.backward = [=](const auto&, const Doubles& dy) -> std::vector<Doubles> { return {negated(dy)}; };
  check.forward_bound = {0.0, 0.0};
  check.backward_bound = {0.0, 0.0};
  return {check, testing::empty_batch_check("neg", {testing::random_tensor(dtype, {0, 5}, 1)}, check.op)};
}

}  // namespace

MIXTAPE_OP_CHECKS(neg, testing::kValueDtypes, neg_checks)
MIXTAPE_OP_CHECKS(scale, testing::kValueDtypes, checks_of<Unary::scale>)
MIXTAPE_OP_CHECKS(exp, testing::kValueDtypes, checks_of<Unary::exp>)
MIXTAPE_OP_CHECKS(log, testing::kValueDtypes, checks_of<Unary::log>)
MIXTAPE_OP_CHECKS(sqrt, testing::kValueDtypes, checks_of<Unary::sqrt>)
MIXTAPE_OP_CHECKS(rsqrt, testing::kValueDtypes, checks_of<Unary::rsqrt>)
MIXTAPE_OP_CHECKS(sigmoid, testing::kValueDtypes, checks_of<Unary::sigmoid>)
MIXTAPE_OP_CHECKS(tanh, testing::kValueDtypes, checks_of<Unary::tanh>)
MIXTAPE_OP_CHECKS(gelu, testing::kValueDtypes, checks_of<Unary::gelu>)
MIXTAPE_OP_CHECKS(silu, testing::kValueDtypes, checks_of<Unary::silu>)
MIXTAPE_OP_CHECKS(softcap, testing::kValueDtypes, checks_of<Unary::softcap>)
MIXTAPE_OP_CHECKS(relu, testing::kValueDtypes, checks_of<Unary::relu>)
MIXTAPE_OP_CHECKS(abs, testing::kValueDtypes, checks_of<Unary::abs>)
MIXTAPE_OP_CHECKS(clamp, testing::kValueDtypes, clamp_checks)
constexpr auto kAddChecks = checks_of<Binary::add, Unary::shift>;
constexpr auto kSubChecks = checks_of<Binary::sub>;
constexpr auto kMulChecks = checks_of<Binary::mul>;
constexpr auto kDivChecks = checks_of<Binary::div, Unary::divide, Unary::reciprocal>;
constexpr auto kPowChecks = checks_of<Binary::pow, Unary::power>;
constexpr auto kMaximumChecks = checks_of<Binary::maximum>;
constexpr auto kMinimumChecks = checks_of<Binary::minimum>;
MIXTAPE_OP_CHECKS(add, testing::kValueDtypes, kAddChecks)
MIXTAPE_OP_CHECKS(sub, testing::kValueDtypes, kSubChecks)
MIXTAPE_OP_CHECKS(mul, testing::kValueDtypes, kMulChecks)
MIXTAPE_OP_CHECKS(div, testing::kValueDtypes, kDivChecks)
MIXTAPE_OP_CHECKS(pow, testing::kValueDtypes, kPowChecks)
MIXTAPE_OP_CHECKS(maximum, testing::kValueDtypes, kMaximumChecks)
MIXTAPE_OP_CHECKS(minimum, testing::kValueDtypes, kMinimumChecks)

}  // namespace mixtape
