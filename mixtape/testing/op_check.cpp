#include "mixtape/testing/op_check.h"

#include <omp.h>

#include <algorithm>
#include <cmath>

namespace mixtape::testing {
namespace {

std::vector<Doubles> values_of(const std::vector<HostTensor>& inputs) {
  std::vector<Doubles> values;
  for (const HostTensor& t : inputs) values.push_back(t.values);
  return values;
}

bool is_differentiable(const OpCheck& check, std::size_t i) {
  if (!check.backward) return false;
  return check.differentiable.empty() ? is_value(check.inputs[i].dtype) : bool{check.differentiable[i]};
}

double dot(const Doubles& a, const Doubles& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// d/dx_e of dot(dy, forward(x)) by the complex step: exact to rounding.
double complex_step(const OpCheck& check, const std::vector<Doubles>& x, const Doubles& dy, std::size_t i,
                    std::size_t e) {
  std::vector<Complexes> inputs;
  for (const Doubles& v : x) inputs.emplace_back(v.begin(), v.end());
  inputs[i][e] += std::complex<double>(0.0, 1e-50);
  const Complexes y = check.complex_forward(inputs);
  double sum = 0.0;
  for (std::size_t j = 0; j < dy.size(); ++j) sum += dy[j] * (y[j].imag() / 1e-50);
  return sum;
}

double central_difference(const OpCheck& check, std::vector<Doubles> x, const Doubles& dy, std::size_t i,
                          std::size_t e) {
  const double at = x[i][e];
  const double h = 1e-5 * std::max(1.0, std::abs(at));
  x[i][e] = at + h;
  const double above = dot(dy, check.forward(x));
  x[i][e] = at - h;
  return (above - dot(dy, check.forward(x))) / (2.0 * h);
}

// Central differences of a smooth f64 function err by about h^2; the complex step by rounding alone.
std::string oracle_fault(const OpCheck& check, const std::vector<Doubles>& x, const Doubles& dy,
                         const std::vector<Doubles>& dx) {
  const double tolerance = check.complex_forward ? 1e-11 : 1e-6;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!is_differentiable(check, i)) continue;
    double scale = 1e-3;
    for (const double d : dx[i]) scale = std::max(scale, std::abs(d));
    for (std::size_t e = 0; e < x[i].size(); ++e) {
      const double wanted =
          check.complex_forward ? complex_step(check, x, dy, i, e) : central_difference(check, x, dy, i, e);
      if (std::abs(dx[i][e] - wanted) <= tolerance * scale) continue;
      return str(check.name, ": the oracle's gradient of input ", i, ", element ", e, " is ", dx[i][e],
                 "; its forward gives ", wanted);
    }
  }
  return {};
}

struct Step {
  Buffer y;
  std::vector<Buffer> dx;  // null where the input has no gradient
};

using Upstream = std::function<Buffer(const Var&)>;
constexpr std::size_t kAll = ~std::size_t{0};

// Forward and backward `times` times over one set of parameters, whose gradients add up. Without an upstream
// gradient: forward alone. `only` is the one input that wants a gradient, all do by default; input `twin` is the
// variable `only` itself.
Step run_step(const Device& device, const OpCheck& check, const Upstream& upstream, int times,
              std::size_t only = kAll, std::size_t twin = kAll) {
  Tape tape(device);
  std::vector<Var> vars;
  for (std::size_t i = 0; i < check.inputs.size(); ++i) {
    const Buffer b = upload(device, check.inputs[i]);
    const bool is_wanted = is_differentiable(check, i) && (only == kAll || only == i);
    vars.push_back(is_wanted ? tape.parameter(b) : tape.constant(b));
  }
  if (twin != kAll) vars[twin] = vars[only];
  Step step;
  for (int t = 0; t < times; ++t) {
    const Var y = check.op(vars);
    if (upstream) tape.backward(y, upstream(y));
    step.y = y.value();
  }
  tape.encoder().commit_and_wait();
  for (const Var& v : vars) step.dx.push_back(v.grad());
  return step;
}

// Enters the comparison in the report.
void note(OpReport& report, double& error, const Closeness& found) {
  error = std::max(error, found.worst);
  if (!found.fault.empty()) report.faults.push_back(found.fault);
}

void compare_one(OpReport& report, const std::string& name, const Buffer& found, const Doubles& wanted,
                 const Bound& bound) {
  note(report, report.gradient_error,
       found ? closeness(name, download(found), wanted, bound) : Closeness{HUGE_VAL, name + ": no gradient"});
}

void compare(OpReport& report, const OpCheck& check, const std::string& what, const Step& step,
             const std::vector<Doubles>& wanted, double times) {
  const Bound bound{check.backward_bound.units + (times - 1.0), check.backward_bound.absolute * times};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!is_differentiable(check, i)) continue;
    Doubles scaled = wanted[i];
    for (double& v : scaled) v *= times;
    compare_one(report, str(check.name, " ", what, ", input ", i), step.dx[i], scaled, bound);
  }
}

// Each gradient where no other one is wanted: the same bits as among all of them.
void measure_each_alone(OpReport& report, const Device& device, const OpCheck& check,
                        const Upstream& random_dy, const Step& all) {
  for (std::size_t i = 0; i < check.inputs.size(); ++i) {
    if (!is_differentiable(check, i)) continue;
    const Step alone = run_step(device, check, random_dy, 1, i);
    if (!alone.dx[i] || download_bytes(alone.dx[i]) != download_bytes(all.dx[i]))
      report.faults.push_back(str(check.name, " backward, input ", i,
                                  ": wanted alone, its gradient is not what it is among the others"));
  }
}

// Two inputs that are one variable: its gradient is the sum of both. The bounds were made for other data, hence
// the larger absolute part.
void measure_twins(OpReport& report, const Device& device, OpCheck check, const Upstream& random_dy,
                   const Doubles& dy) {
  const std::vector<HostTensor> inputs = check.inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (std::size_t j = i + 1; j < inputs.size(); ++j) {
      if (!is_differentiable(check, i) || !is_differentiable(check, j)) continue;
      if (inputs[i].dtype != inputs[j].dtype || inputs[i].shape != inputs[j].shape) continue;
      check.inputs = inputs;
      check.inputs[j] = inputs[i];
      const std::vector<Doubles> dx = check.backward(values_of(check.inputs), dy);
      Doubles sum = dx[i];
      double largest = 0.0;
      for (std::size_t e = 0; e < sum.size(); ++e) {
        largest = std::max({largest, std::abs(dx[i][e]), std::abs(dx[j][e])});
        sum[e] += dx[j][e];
      }
      const Bound bound{check.backward_bound.units + 1.0,
                        4.0 * check.backward_bound.absolute + 4.0 * epsilon(inputs[i].dtype) * largest};
      compare_one(report, str(check.name, " backward, inputs ", i, " and ", j, " are one variable"),
                  run_step(device, check, random_dy, 1, i, j).dx[i], sum, bound);
    }
  }
}

// Gradients for upstream gradients that are random, random and added twice, all ones, and a slice.
void measure_gradients(OpReport& report, const Device& device, const OpCheck& check,
                       const Upstream& random_dy, const Doubles& dy) {
  const std::vector<Doubles> x = values_of(check.inputs);
  const std::vector<Doubles> dx = check.backward(x, dy);
  const Step step = run_step(device, check, random_dy, 1);
  compare(report, check, "backward", step, dx, 1.0);
  measure_each_alone(report, device, check, random_dy, step);
  measure_twins(report, device, check, random_dy, dy);
  compare(report, check, "backward, accumulated", run_step(device, check, random_dy, 2), dx, 2.0);

  const Upstream ones = [&](const Var& v) {
    const Buffer b = device.alloc(v.dtype(), v.shape());
    v.tape().encoder().fill(b, 1.0f);
    return b;
  };
  compare(report, check, "backward, upstream of a sum", run_step(device, check, ones, 1),
          check.backward(x, Doubles(dy.size(), 1.0)), 1.0);

  Doubles middle;
  const Upstream sliced = [&](const Var& v) {  // the middle third of a larger buffer
    std::vector<std::int64_t> dims = v.shape().dims();
    dims.insert(dims.begin(), 3);
    const HostTensor all = random_tensor(v.dtype(), Shape(dims), 78);
    const auto n = static_cast<std::ptrdiff_t>(v.value().numel());
    middle.assign(all.values.begin() + n, all.values.begin() + 2 * n);
    return upload(device, all).slice(1, 2).reshape(v.shape());
  };
  const Step with_slice = run_step(device, check, sliced, 1);
  compare(report, check, "backward, sliced upstream", with_slice, check.backward(x, middle), 1.0);

  if (!check.prove_oracle) return;
  const std::string fault = oracle_fault(check, x, dy, dx);
  report.oracle_proved = fault.empty();
  if (!fault.empty()) report.faults.push_back(fault);
}

}  // namespace

Bound rounded_once(DType dtype, Bound f32_bound) {
  if (dtype == DType::f32) return f32_bound;
  return {0.51 + f32_bound.units * epsilon(DType::f32) / epsilon(dtype), f32_bound.absolute};
}

OpCheck empty_batch_check(const std::string& name, const std::vector<HostTensor>& inputs,
                          const std::function<Var(const std::vector<Var>&)>& op, std::size_t zeros) {
  OpCheck check;
  check.name = name + " of an empty batch";
  check.inputs = inputs;
  check.op = op;
  check.forward = [zeros](const std::vector<Doubles>&) { return Doubles(zeros, 0.0); };
  check.backward = [](std::vector<Doubles> x, const Doubles&) {
    for (Doubles& v : x) std::fill(v.begin(), v.end(), 0.0);
    return x;
  };
  check.prove_oracle = false;
  return check;
}

namespace {

// f, plus its last argument.
template <class Values>
std::function<Values(const std::vector<Values>&)> plus_last(
    const std::function<Values(const std::vector<Values>&)>& f) {
  if (!f) return nullptr;
  return [f](const std::vector<Values>& x) {
    Values y = f(x);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += x.back()[i];
    return y;
  };
}

}  // namespace

OpCheck with_addend(OpCheck check, const HostTensor& addend,
                    const std::function<Var(const std::vector<Var>&)>& op) {
  check.name += " + addend";
  check.inputs.push_back(addend);
  check.op = op;
  check.forward = plus_last(check.forward);
  check.complex_forward = plus_last(check.complex_forward);
  check.backward = [backward = check.backward](const std::vector<Doubles>& x, const Doubles& dy) {
    std::vector<Doubles> gradients = backward(x, dy);
    gradients.push_back(dy);
    return gradients;
  };
  if (!check.differentiable.empty()) check.differentiable.push_back(true);
  return check;
}

OpReport measure_op(const Device& device, const OpCheck& check, int runs) {
  const Poison poison(device);
  OpReport report;
  report.has_gradient = check.backward != nullptr;
  HostTensor dy;
  Upstream random_dy;
  if (report.has_gradient) {
    random_dy = [&](const Var& v) {
      if (dy.values.empty()) dy = random_tensor(v.dtype(), v.shape(), 77);
      return upload(device, dy);
    };
  }
  const Step step = run_step(device, check, random_dy, 1);
  report.is_of_empty_batch = step.y.numel() == 0;
  for (const HostTensor& input : check.inputs) report.is_of_empty_batch |= input.values.empty();
  note(report, report.forward_error,
       closeness(check.name + " forward", download(step.y), check.forward(values_of(check.inputs)),
                 check.forward_bound));
  if (report.has_gradient) measure_gradients(report, device, check, random_dy, dy.values);

  const auto again = [&] {
    Step repeated = run_step(device, check, random_dy, 1);
    repeated.dx.push_back(repeated.y);
    return repeated.dx;
  };
  const std::string fault = bits_fault(check.name, again, runs);
  report.deterministic = fault.empty();
  if (!fault.empty()) report.faults.push_back(fault);
  return report;
}

double largest(const Doubles& values) {
  double most = 0.0;
  for (const double v : values) most = std::max(most, std::abs(v));
  return most;
}

Closeness closeness(const std::string& what, const HostTensor& found, const Doubles& wanted, Bound bound) {
  if (found.values.size() != wanted.size()) {
    return {HUGE_VAL, str(what, ": ", found.values.size(), " elements, expected ", wanted.size())};
  }
  const double unit = is_value(found.dtype) ? epsilon(found.dtype) : 0.0;  // ids and codes are exact
  const double spacing = found.dtype == DType::f16 ? 0x1p-24 : 0.0;        // of subnormal values
  Closeness result;
  std::size_t at = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double f = found.values[i];
    if (f == wanted[i] || (std::isnan(f) && std::isnan(wanted[i]))) continue;
    const double allowed = bound.units * std::max(unit * std::abs(wanted[i]), spacing) + bound.absolute;
    const double error = std::abs(f - wanted[i]) / std::max(allowed, 1e-300);
    if (!(error <= result.worst)) {
      result.worst = std::isfinite(error) ? error : HUGE_VAL;
      at = i;
    }
  }
  if (result.worst > 1.0) {
    result.fault = str(what, ": element ", at, " is ", found.values[at], ", expected ", wanted[at],
                       "; error is ", result.worst, " of its bound (", bound.units, " units of ", found.dtype,
                       " + ", bound.absolute, ")");
  }
  return result;
}

std::string bits_fault(const std::string& what, const std::function<std::vector<Buffer>()>& work, int runs) {
  const auto bytes = [&] {
    std::vector<std::vector<std::byte>> all;
    for (const Buffer& b : work()) all.push_back(b ? download_bytes(b) : std::vector<std::byte>());
    return all;
  };
  const auto first = bytes();
  for (int i = 1; i < runs; ++i) {
    if (bytes() != first) return str(what, ": the bits of run ", i, " differ");
  }
  const int threads = omp_get_max_threads();
  for (const int t : {1, 2, 7}) {
    omp_set_num_threads(t);
    const auto again = bytes();
    omp_set_num_threads(threads);
    if (again != first) return str(what, ": the bits differ with ", t, " threads");
  }
  return {};
}

}  // namespace mixtape::testing
