#include "mixtape/ops/gated_delta_rule/gated_delta_rule_check.h"

#include <cmath>

#include "mixtape/ops/gated_delta_rule/gated_delta_rule.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using oracle::DeltaCase;
using oracle::DeltaInputs;
using testing::Doubles;
using testing::HostTensor;
using testing::largest;
using testing::OpCheck;

std::vector<HostTensor> delta_tensors(DType dtype, const DeltaCase& c, bool initial) {
  const Shape keys{c.batch, c.length, c.key_heads, c.key_dim},
      values{c.batch, c.length, c.value_heads, c.value_dim}, gates{c.batch, c.length, c.value_heads};
  const double unit = 1.0 / std::sqrt(static_cast<double>(c.key_dim));
  Doubles g = testing::random_tensor(DType::f32, gates, 4).values,
          beta = testing::random_tensor(DType::f32, gates, 5).values;
  for (double& v : g) v = -0.2 * v * v;                   // decays from 1 down to about 0.1
  for (double& v : beta) v = 1.0 / (1.0 + std::exp(-v));  // a sigmoid's
  std::vector<HostTensor> all = {
      testing::random_tensor(dtype, keys, 1, unit), testing::random_tensor(dtype, keys, 2, unit),
      testing::random_tensor(dtype, values, 3), testing::make_tensor(DType::f32, gates, g),
      testing::make_tensor(DType::f32, gates, beta)};
  if (initial) {
    all.push_back(
        testing::random_tensor(DType::f32, {c.batch, c.value_heads, c.value_dim, c.key_dim}, 6, unit));
  }
  return all;
}

namespace {

std::vector<Doubles> doubles_of(const std::vector<HostTensor>& tensors) {
  std::vector<Doubles> all;
  for (const HostTensor& t : tensors) all.push_back(t.values);
  return all;
}

double largest_state(const DeltaCase& c, const DeltaInputs<double>& in) {
  double most = 0.0;
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t head = 0; head < c.value_heads; ++head) {
      for (const Doubles& s : oracle::delta_head(c, in, b, head).states) most = std::max(most, largest(s));
    }
  }
  return most;
}

// Of dg's terms in one chunk: the products of q and dq, and of k and dk, and those with the state.
double largest_chunk(const DeltaCase& c, const DeltaInputs<double>& in,
                     const DeltaInputs<double>& magnitudes) {
  double most = 0.0, sum = 0.0;
  for (std::int64_t t = 0; t < c.length; ++t) {
    if (t % 64 == 0) sum = 0.0;
    const std::size_t row = in.q.size() / static_cast<std::size_t>(c.length),
                      at = static_cast<std::size_t>(t) * row;
    for (std::size_t i = at; i < at + row && c.batch == 1; ++i)
      sum += std::abs(in.q[i]) * magnitudes.q[i] + std::abs(in.k[i]) * magnitudes.k[i];
    most = std::max(most, sum);
  }
  if (c.batch > 1) {  // the sequences lie one behind the other: all of them
    for (std::size_t i = 0; i < in.q.size(); ++i)
      most += std::abs(in.q[i]) * magnitudes.q[i] + std::abs(in.k[i]) * magnitudes.k[i];
  }
  return most + largest(magnitudes.g);
}

double largest_sum(const DeltaCase& c, const DeltaInputs<double>& in, const Doubles& dy,
                   const Doubles& dfinal) {
  const DeltaInputs<double> m = oracle::gated_delta_rule_backward(c, in, dy, dfinal).magnitudes;
  return std::max({largest(m.q), largest(m.k), largest(m.v), largest(m.beta), largest(m.initial),
                   largest_chunk(c, in, m)});
}

}  // namespace

// The contract's n u times the sums of magnitudes, for upstream gradients like those that the checks take: random
// ones, twice as large, and ones.
DeltaBounds delta_bounds(const DeltaCase& c, const std::vector<HostTensor>& inputs) {
  if (c.batch * c.length == 0) return {0.0, 0.0};
  const DeltaInputs<double> in = delta_inputs(doubles_of(inputs));
  double nu = static_cast<double>(c.length + c.key_dim + c.value_dim + 192) * 0x1p-24, rounded = nu;
  if (inputs[0].dtype == DType::bf16 && c.key_dim % 8 == 0 && c.value_dim % 8 == 0 && c.key_dim <= 128 &&
      c.value_dim <= 128) {  // on matrix units
    nu += (4.0 + static_cast<double>(c.length) / 64.0) * 0x1p-16;
    rounded = nu + 0x1p-7;
  }
  const Shape values = inputs[2].shape, states{c.batch, c.value_heads, c.value_dim, c.key_dim};
  const Doubles random = testing::random_tensor(DType::f32, values, 77, 2.0).values;
  const Doubles random_state = testing::random_tensor(DType::f32, states, 78, 2.0).values;
  const double of_random = largest_sum(c, in, random, random_state);
  const double of_ones = largest_sum(c, in, Doubles(random.size(), 1.0), {});
  const double keys = static_cast<double>(c.key_dim) * std::abs(c.scale) * largest(in.q);
  return {nu * std::max(1.0, keys) * largest_state(c, in), rounded * std::max(of_random, of_ones)};
}

OpCheck gated_delta_rule_check(DType dtype, const DeltaCase& c, bool initial) {
  OpCheck check;
  check.name = str("gated_delta_rule ", dtype, " ", c.batch, "x", c.length, " heads ", c.key_heads, "/",
                   c.value_heads, " dims ", c.key_dim, "/", c.value_dim, initial ? " initial" : "");
  check.inputs = delta_tensors(dtype, c, initial);
  check.op = [scale = static_cast<float>(c.scale)](const std::vector<Var>& v) {
    return gated_delta_rule(v[0], v[1], v[2], v[3], v[4], v.size() > 5 ? v[5] : Var(), scale).y;
  };
  check.forward = [c](const auto& v) { return oracle::gated_delta_rule(c, delta_inputs(v)).y; };
  check.complex_forward = [c](const auto& v) { return oracle::gated_delta_rule(c, delta_inputs(v)).y; };
  check.backward = [c, initial](const auto& v, const Doubles& dy) {
    DeltaInputs<double> g = oracle::gated_delta_rule_backward(c, delta_inputs(v), dy, {}).values;
    std::vector<Doubles> all = {g.q, g.k, g.v, g.g, g.beta};
    if (initial) all.push_back(g.initial);
    return all;
  };
  const DeltaBounds bounds = delta_bounds(c, check.inputs);
  check.forward_bound = {1.0, bounds.forward};
  check.backward_bound = {1.0, bounds.backward};
  check.prove_oracle = c.batch * c.length * c.value_heads * c.key_dim * c.value_dim <= 800;
  return check;
}

std::vector<OpCheck> gated_delta_rule_checks(const Device&, DType dtype) {
  struct Case {
    DeltaCase c;
    bool initial;
  };
  std::vector<Case> cases = {
      {{.batch = 0, .length = 3, .key_heads = 1, .value_heads = 2, .key_dim = 4, .value_dim = 5}, true},
      {{.batch = 2, .length = 0, .key_heads = 1, .value_heads = 2, .key_dim = 4, .value_dim = 5}, false},
      {{.batch = 2,
        .length = 5,
        .key_heads = 1,
        .value_heads = 2,
        .key_dim = 4,
        .value_dim = 3,
        .scale = 0.5},
       true}};
  if (dtype == DType::f32) {
    cases.push_back(
        {{.length = 6, .key_heads = 2, .value_heads = 2, .key_dim = 5, .value_dim = 5, .scale = 0.25},
         false});
    cases.push_back(
        {{.length = 1, .key_heads = 1, .value_heads = 3, .key_dim = 6, .value_dim = 2, .scale = 2.0}, true});
    cases.push_back(
        {{.length = 4, .key_heads = 2, .value_heads = 4, .key_dim = 3, .value_dim = 7, .scale = 0.5}, false});
  }
  std::vector<OpCheck> checks;
  for (const Case& one : cases) checks.push_back(gated_delta_rule_check(dtype, one.c, one.initial));
  return checks;
}

MIXTAPE_OP_CHECKS(gated_delta_rule, testing::kValueDtypes, gated_delta_rule_checks)

}  // namespace mixtape
