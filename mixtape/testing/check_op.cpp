#include "mixtape/testing/check_op.h"

#include <omp.h>

#include <cmath>
#include <cstdlib>
#include <sstream>

namespace mixtape::testing {
namespace {

std::vector<Doubles> values_of(const std::vector<HostTensor>& inputs) {
  std::vector<Doubles> values;
  for (const HostTensor& t : inputs) values.push_back(t.values);
  return values;
}

bool is_differentiable(const OpCheck& check, std::size_t i) {
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
void prove_oracle(const OpCheck& check, const std::vector<Doubles>& x, const Doubles& dy,
                  const std::vector<Doubles>& dx) {
  const double tolerance = check.complex_forward ? 1e-11 : 1e-6;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!is_differentiable(check, i)) continue;
    double scale = 1e-3;
    for (const double d : dx[i]) scale = std::max(scale, std::abs(d));
    for (std::size_t e = 0; e < x[i].size(); ++e) {
      const double wanted =
          check.complex_forward ? complex_step(check, x, dy, i, e) : central_difference(check, x, dy, i, e);
      ASSERT_NEAR(dx[i][e], wanted, tolerance * scale)
          << check.name << ": oracle gradient of input " << i << " at " << e;
    }
  }
}

struct Step {
  Buffer y;
  std::vector<Buffer> dx;  // null where the input has no gradient
};

// Forward and backward `times` times over one set of parameters, whose gradients add up.
Step run_step(const Device& device, const OpCheck& check, const std::function<Buffer(const Var&)>& upstream,
              int times) {
  Tape tape(device);
  std::vector<Var> vars;
  for (std::size_t i = 0; i < check.inputs.size(); ++i) {
    const Buffer b = upload(device, check.inputs[i]);
    vars.push_back(is_differentiable(check, i) ? tape.parameter(b) : tape.constant(b));
  }
  Step step;
  for (int t = 0; t < times; ++t) {
    const Var y = check.op(vars);
    tape.backward(y, upstream(y));
    step.y = y.value();
  }
  tape.encoder().commit_and_wait();
  for (const Var& v : vars) step.dx.push_back(v.grad());
  return step;
}

void compare(const OpCheck& check, const std::string& what, const Step& step,
             const std::vector<Doubles>& wanted, double times) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!is_differentiable(check, i)) continue;
    ASSERT_TRUE(step.dx[i]) << check.name << ": no gradient for input " << i;
    Doubles scaled = wanted[i];
    for (double& v : scaled) v *= times;
    const Bound bound{check.backward_bound.units + (times - 1.0), check.backward_bound.absolute * times};
    expect_close(str(check.name, " ", what, ", input ", i), step.dx[i], scaled, bound);
  }
}

}  // namespace

void check_op(const Device& device, const OpCheck& check) {
  const Poison poison(device);
  const std::vector<Doubles> x = values_of(check.inputs);
  const Doubles y = check.forward(x);
  if (!check.backward) {
    Tape tape(device);
    std::vector<Var> vars;
    for (const HostTensor& t : check.inputs) vars.push_back(tape.constant(upload(device, t)));
    const Buffer found = check.op(vars).value();
    tape.encoder().commit_and_wait();
    expect_close(check.name + " forward", found, y, check.forward_bound);
    return;
  }
  HostTensor dy;
  const auto random_dy = [&](const Var& v) {
    dy = random_tensor(v.dtype(), v.shape(), 77);
    return upload(device, dy);
  };
  const Step step = run_step(device, check, random_dy, 1);
  expect_close(check.name + " forward", step.y, y, check.forward_bound);
  const std::vector<Doubles> dx = check.backward(x, dy.values);
  compare(check, "backward", step, dx, 1.0);
  if (check.prove_oracle && device == Device::cpu()) prove_oracle(check, x, dy.values, dx);
  compare(check, "backward, accumulated", run_step(device, check, random_dy, 2), dx, 2.0);

  const auto ones = [&](const Var& v) {
    const Buffer b = device.alloc(v.dtype(), v.shape());
    v.tape().encoder().fill(b, 1.0f);
    return b;
  };
  compare(check, "backward, upstream of a sum", run_step(device, check, ones, 1),
          check.backward(x, Doubles(y.size(), 1.0)), 1.0);

  const auto sliced = [&](const Var& v) {  // the middle third of a larger buffer
    std::vector<std::int64_t> dims = v.shape().dims();
    dims.insert(dims.begin(), 3);
    const HostTensor all = random_tensor(v.dtype(), Shape(dims), 78);
    const auto n = static_cast<std::ptrdiff_t>(v.value().numel());
    dy.values.assign(all.values.begin() + n, all.values.begin() + 2 * n);
    return upload(device, all).slice(1, 2).reshape(v.shape());
  };
  const Step with_slice = run_step(device, check, sliced, 1);
  compare(check, "backward, sliced upstream", with_slice, check.backward(x, dy.values), 1.0);

  expect_same_bits(
      check.name,
      [&] {
        const Step again = run_step(device, check, random_dy, 1);
        std::vector<Buffer> all = again.dx;
        all.push_back(again.y);
        return all;
      },
      device.name() == "sim" ? 2 : 20);
}

void expect_close(const std::string& what, const HostTensor& found, const Doubles& wanted, Bound bound) {
  ASSERT_EQ(found.values.size(), wanted.size()) << what;
  const double unit = epsilon(found.dtype);
  const double spacing = found.dtype == DType::f16 ? 0x1p-24 : 0.0;  // of subnormal values
  double worst = 0.0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double f = found.values[i];
    if (f == wanted[i] || (std::isnan(f) && std::isnan(wanted[i]))) continue;
    const double allowed = bound.units * std::max(unit * std::abs(wanted[i]), spacing) + bound.absolute;
    const double error = std::abs(f - wanted[i]) / std::max(allowed, 1e-300);
    if (!(error <= worst)) {
      worst = std::isfinite(error) ? error : HUGE_VAL;
      at = i;
    }
  }
  EXPECT_LE(worst, 1.0) << what << ": element " << at << " is " << found.values[at] << ", expected "
                        << wanted[at] << "; error is " << worst << " of its bound (" << bound.units
                        << " units of " << found.dtype << " + " << bound.absolute << ")";
}

void expect_close(const std::string& what, const Buffer& found, const Doubles& wanted, Bound bound) {
  expect_close(what, download(found), wanted, bound);
}

void expect_same_bits(const std::string& what, const std::function<std::vector<Buffer>()>& work, int runs) {
  const auto bytes = [&] {
    std::vector<std::vector<std::byte>> all;
    for (const Buffer& b : work()) all.push_back(b ? download_bytes(b) : std::vector<std::byte>());
    return all;
  };
  const auto first = bytes();
  for (int i = 1; i < runs; ++i) ASSERT_EQ(first, bytes()) << what << ": run " << i << " differs";
  const int threads = omp_get_max_threads();
  for (const int t : {1, 2, 7}) {
    omp_set_num_threads(t);
    const auto again = bytes();
    omp_set_num_threads(threads);
    ASSERT_EQ(first, again) << what << ": differs with " << t << " threads";
  }
}

std::vector<Device> test_devices() {
  const char* names = std::getenv("MIXTAPE_TEST_DEVICES");
  std::istringstream list(names ? names : "cpu");
  std::vector<Device> devices;
  for (std::string name; std::getline(list, name, ',');) devices.push_back(Device::open(name));
  return devices;
}

std::vector<std::string> test_device_names() {
  std::vector<std::string> names;
  for (const Device& device : test_devices()) names.push_back(device.name());
  return names;
}

}  // namespace mixtape::testing
