// Adam (adam.h) over Vars: holds their moments and counts its steps.
//   Adam adam({w1, w2}, {.lr = 1e-3f});
//   for (...) {
//     tape.backward(loss_of(w1, w2));
//     adam.step();
//     adam.zero_grad();
//   }
#pragma once

#include <vector>

#include "mixtape/autograd/tape.h"
#include "mixtape/ops/adam/adam.h"

namespace mixtape {

class Adam {
 public:
  struct Moments {
    Buffer first, second;  // of the parameter's shape
  };

  // `parameters` are leaves of one tape, of any value dtype and shape; train f32, a 16-bit parameter loses small
  // steps. Moments begin at zero. `units`: of each parameter's step size; none: 1 each. `moments`: their type, f32
  // or bf16 (adam.h). Throws invalid_argument for no parameters, one that requires no gradient, parameters of two
  // tapes, one named twice, another number of units, or another type of moments.
  explicit Adam(std::vector<Var> parameters, const AdamOptions& options = {}, std::vector<float> units = {},
                DType moments = DType::f32);

  // Changes the parameters in place by the gradients that they have now; a parameter without one keeps its
  // value and moments. Encoded on the tape's encoder, not waited for. Throws invalid_argument for options that
  // adam_step refuses.
  void step();
  // Drops the parameters' gradients: the next backward begins at nothing.
  void zero_grad() const;
  // The square root of the sum of all gradients' squares. Waits for the device.
  double gradient_norm() const;

  // For what changes from step to step: lr, grad_scale. The member `step` is set by step().
  AdamOptions& options() { return options_; }
  const AdamOptions& options() const { return options_; }
  // Steps made so far; set where saved moments are loaded.
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

  const std::vector<Var>& parameters() const { return parameters_; }
  const std::vector<Moments>& moments() const { return moments_; }
  std::vector<float>& units() { return units_; }
  const std::vector<float>& units() const { return units_; }

 private:
  std::vector<Buffer> gradients() const;
  std::vector<Var> parameters_;
  AdamOptions options_;
  std::vector<float> units_;
  std::vector<Moments> moments_;
  std::int64_t steps_ = 0;
};

}  // namespace mixtape
