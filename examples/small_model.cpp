// A model of two layers, trained in forty lines: does a point lie outside the unit circle?
#include <cstdio>

#include "mixtape/mixtape.h"
using namespace mixtape;

int main() {
  try {
    Tape tape(Device::open("auto"));
    const Device& device = tape.device();
    const Var x = tape.constant(randn(device, {256, 2}, 1));  // [points, 2]
    const Var is_outside = sum(x * x, 1, true) > 1.0f;        // [points, 1], a mask

    const Var w1 = tape.parameter(randn(device, {2, 16}, 2)), b1 = tape.parameter(zeros(device, {16}));
    const Var w2 = tape.parameter(randn(device, {16, 1}, 3, 0.3)), b2 = tape.parameter(zeros(device, {1}));
    Adam adam({w1, b1, w2, b2}, {.lr = 0.02f});

    double loss_value = 0.0;
    for (int step = 1; step <= 200; ++step) {
      const Var hidden = relu(matmul(x, w1) + b1);                    // [points, 16]
      const Var p = 1.0f / (exp(-(matmul(hidden, w2) + b2)) + 1.0f);  // [points, 1]
      const Var right = where(is_outside, p, 1.0f - p);               // how sure of what is so
      const Var loss = mean(-log(right + 1e-6f), 0);                  // [1]
      tape.backward(loss);
      adam.step();
      adam.zero_grad();
      if (step % 50 == 0) std::printf("step %3d  loss %.4f\n", step, loss_value = item(loss));
    }
    return loss_value < 0.15 ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "small_model: %s\n", error.what());
    return 1;
  }
}
