#include "mixtape/ops/causal_conv1d/causal_conv1d_check.h"

#include <algorithm>
#include <cmath>

#include "mixtape/ops/causal_conv1d/causal_conv1d.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using oracle::ConvCase;
using testing::Doubles;
using testing::HostTensor;
using testing::largest;
using testing::OpCheck;

namespace {

// Inputs in their order: x, w, then bias and history where there are any.
template <class Values>
struct ConvParts {
  Values x, w, bias, history;
  ConvParts(const std::vector<Values>& v, const ConvCheck& of)
      : x(v[0]), w(v[1]), bias(of.bias ? v[2] : Values()), history(of.history ? v.back() : Values()) {}
};

// The contract's bounds, |dy| <= 5 and the slope of silu <= 1.1.
void set_bounds(OpCheck& check, const Device& device, const ConvCase& c, const std::vector<HostTensor>& in) {
  const double u = 0x1p-24, taps = static_cast<double>(c.taps);
  const double x = largest(in[0].values), w = largest(in[1].values);
  const double a = taps * std::max(x, 5.0) * w + 5.0, slope = 8.0 * u + (taps + 1.0) * u * a;
  const auto rows = static_cast<double>(c.batch * c.length);
  const auto run = static_cast<double>(device.caps().rows_per_block(c.batch * c.length));
  const double dx = (taps * u + slope) * taps * w * 5.5;
  const double dw = ((run + rows / run + static_cast<double>(c.batch) + 2.0) * u + slope) *
                    std::max(1.0, std::sqrt(rows)) * 3.0 * 5.5 * std::max(x, 5.0);
  check.forward_bound = {1.0, (taps + 5.0) * u * a};
  check.backward_bound = {1.0, std::max(dx, dw)};
}

}  // namespace

OpCheck causal_conv1d_check(const Device& device, DType dtype, const ConvCheck& of) {
  const ConvCase c = of.c;
  const DType weights = of.f32_weights ? DType::f32 : dtype;
  OpCheck check;
  check.name =
      str("causal_conv1d ", dtype, " ", c.batch, "x", c.length, "x", c.channels, " taps ", c.taps,
          c.silu ? " silu" : "", of.bias ? " bias" : "", of.history ? " history" : "", " w ", weights);
  check.inputs = {testing::random_tensor(dtype, {c.batch, c.length, c.channels}, 1),
                  testing::random_tensor(weights, {c.channels, c.taps}, 2)};
  if (of.bias) check.inputs.push_back(testing::random_tensor(weights, {c.channels}, 3));
  if (of.history) check.inputs.push_back(testing::random_tensor(dtype, {c.batch, c.taps - 1, c.channels}, 4));
  check.op = [of](const std::vector<Var>& v) {
    const ConvParts<Var> in(v, of);
    return causal_conv1d(in.x, in.w, in.bias, in.history,
                         of.c.silu ? ConvActivation::silu : ConvActivation::none);
  };
  check.forward = [of](const auto& v) {
    const ConvParts<Doubles> in(v, of);
    return oracle::causal_conv1d(of.c, in.x, in.w, in.bias, in.history);
  };
  check.complex_forward = [of](const auto& v) {
    const ConvParts<testing::Complexes> in(v, of);
    return oracle::causal_conv1d(of.c, in.x, in.w, in.bias, in.history);
  };
  check.backward = [of](const auto& v, const Doubles& dy) {
    const ConvParts<Doubles> in(v, of);
    oracle::ConvGradients g = oracle::causal_conv1d_backward(of.c, in.x, in.w, in.bias, in.history, dy);
    std::vector<Doubles> all = {std::move(g.dx), std::move(g.dw)};
    if (of.bias) all.push_back(std::move(g.dbias));
    if (of.history) all.push_back(std::move(g.dhistory));
    return all;
  };
  set_bounds(check, device, c, check.inputs);
  check.prove_oracle = c.batch * c.length * c.channels * c.taps <= 600;
  return check;
}

std::vector<OpCheck> causal_conv1d_checks(const Device& device, DType dtype) {
  const std::vector<ConvCheck> cases = {
      {.c = {.batch = 0, .length = 3, .channels = 5, .taps = 4}, .bias = true},
      {.c = {.batch = 2, .length = 0, .channels = 5, .taps = 4, .silu = true}, .history = true},
      {.c = {.batch = 2, .length = 7, .channels = 6, .taps = 4, .silu = true}},
      {.c = {.batch = 2, .length = 5, .channels = 3, .taps = 4, .silu = true}, .bias = true, .history = true},
      {.c = {.batch = 2, .length = 3, .channels = 6, .taps = 4}, .bias = true, .history = true},
      {.c = {.batch = 3, .length = 1, .channels = 4, .taps = 4, .silu = true}, .history = true},
      {.c = {.batch = 1, .length = 9, .channels = 2, .taps = 1, .silu = true}, .bias = true, .history = true},
      {.c = {.batch = 2, .length = 6, .channels = 5, .taps = 2}, .history = true},
      {.c = {.batch = 1, .length = 11, .channels = 3, .taps = 7, .silu = true}, .history = true}};
  std::vector<OpCheck> checks;
  for (const ConvCheck& c : cases) checks.push_back(causal_conv1d_check(device, dtype, c));
  if (dtype == DType::f32) return checks;
  ConvCheck with_f32 = cases[3];
  with_f32.f32_weights = true;
  checks.push_back(causal_conv1d_check(device, dtype, with_f32));
  return checks;
}

MIXTAPE_OP_CHECKS(causal_conv1d, testing::kValueDtypes, causal_conv1d_checks)

}  // namespace mixtape
