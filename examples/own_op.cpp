// An op of your own, from outside the library: softplus, y = ln(1 + e^x), with dy/dx = 1 / (1 + e^-x).
// Three steps: kernels that do the work, a function that puts the op on the tape, and a proof of its
// gradient.
#include <cmath>
#include <cstdio>

#include "mixtape/mixtape.h"
using namespace mixtape;

// 1. Host kernels, entered in the library's table by name before main. `read` and `write` are the buffers
// that the op names below. The second kernel adds to dx where something else has already contributed to it.
struct SoftplusParams {
  std::int64_t count;
  Accumulate accumulate;
};

void softplus_forward(const HostCall& call) {
  const auto& p = call.params<SoftplusParams>();
  const float* x = call.read<float>(0);
  float* y = call.write<float>(0);
  for (std::int64_t i = 0; i < p.count; ++i)
    y[i] = std::fmax(x[i], 0.0f) + std::log1p(std::exp(-std::fabs(x[i])));
}
MIXTAPE_HOST_KERNEL("softplus_forward", softplus_forward);

void softplus_backward(const HostCall& call) {
  const auto& p = call.params<SoftplusParams>();
  const float *x = call.read<float>(0), *dy = call.read<float>(1);
  float* dx = call.write<float>(0);
  for (std::int64_t i = 0; i < p.count; ++i) {
    const float gradient = dy[i] / (1.0f + std::exp(-x[i]));
    dx[i] = p.accumulate == Accumulate::yes ? dx[i] + gradient : gradient;
  }
}
MIXTAPE_HOST_KERNEL("softplus_backward", softplus_backward);

// 2. The op on the tape. The rule captures what it needs later: x.
Var softplus(const Var& x) {
  require(x.dtype() == DType::f32, "softplus: x is ", x.value(), ", expected f32");
  Tape& tape = x.tape();
  const Buffer y = tape.alloc(DType::f32, x.shape());
  tape.encoder().encode({.kernel = "softplus_forward",
                         .params = params_bytes(SoftplusParams{y.numel(), Accumulate::no}),
                         .reads = {x.value()},
                         .writes = {y}});
  return tape.record("softplus", {x}, y, [x = x.value()](Backward& b) {
    const auto [dx, accumulate] = b.grad(0);
    b.encoder().encode({.kernel = "softplus_backward",
                        .params = params_bytes(SoftplusParams{dx.numel(), accumulate}),
                        .reads = {x, b.dy()},
                        .writes = {dx}});
  });
}

// sum(softplus(x) * x): softplus's x gets gradients from two sides.
Var loss_of(const Var& x) { return sum(softplus(x) * x); }

// 3. The slope in each direction by central differences, against the tape's gradient.
int main() {
  try {
    const Device device = Device::cpu();  // where host kernels run
    Tape tape(device);
    std::vector<float> x = {-3.0f, -0.5f, 0.0f, 0.25f, 2.0f};
    const Shape shape{static_cast<std::int64_t>(x.size())};
    const auto loss_at = [&](const std::vector<float>& at) {
      const Var loss = loss_of(tape.constant(Buffer::from(device, shape, at)));
      tape.encoder().commit_and_wait();
      return static_cast<double>(loss.value().to_vector<float>()[0]);
    };

    const Var parameter = tape.parameter(Buffer::from(device, shape, x));
    tape.backward(loss_of(parameter));
    tape.encoder().commit_and_wait();
    const std::vector<float> gradient = parameter.grad().to_vector<float>();

    bool is_right = true;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float h = 1.0f / 128, before = x[i];
      x[i] = before + h;
      const double above = loss_at(x);
      x[i] = before - h;
      const double slope = (above - loss_at(x)) / (2.0 * static_cast<double>(h));
      x[i] = before;
      std::printf("x %6.2f  gradient %8.5f  slope %8.5f\n", static_cast<double>(x[i]),
                  static_cast<double>(gradient[i]), slope);
      is_right = is_right && std::fabs(slope - static_cast<double>(gradient[i])) < 2e-4;
    }
    return is_right ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "own_op: %s\n", error.what());
    return 1;
  }
}
