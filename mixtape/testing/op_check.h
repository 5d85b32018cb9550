// One check for every op: forward and gradient against a double-precision oracle, the oracle's gradient
// against its own forward, outputs poisoned beforehand, the same bits over runs and thread counts.
// This header only measures; check_op.h asserts on what was measured.
#pragma once

#include <complex>
#include <functional>
#include <string>
#include <vector>

#include "mixtape/autograd/tape.h"
#include "mixtape/testing/host_tensor.h"

namespace mixtape::testing {

// |found - wanted| <= units * epsilon(dtype of found) * |wanted| + absolute; a unit is 2^-24 at least in f16,
// the distance of its subnormal values.
struct Bound {
  double units = 1.0;
  double absolute = 0.0;
};

// Of a result that is computed in f32 within `f32_bound`, then rounded to the dtype.
Bound rounded_once(DType dtype, Bound f32_bound);

using Doubles = std::vector<double>;

// Of the magnitudes; 0 of nothing.
double largest(const Doubles& values);
using Complexes = std::vector<std::complex<double>>;

struct OpCheck {
  std::string name;
  std::vector<HostTensor> inputs;
  // Which inputs get a gradient; empty: all of a value dtype.
  std::vector<bool> differentiable;
  // The op on the tape.
  std::function<Var(const std::vector<Var>&)> op;
  // The formula in straight loops: values of the inputs -> values of the output.
  std::function<Doubles(const std::vector<Doubles>&)> forward;
  // The gradient rule in straight loops: inputs, upstream gradient -> one gradient per input (empty where
  // none). Null for an op without gradient.
  std::function<std::vector<Doubles>(const std::vector<Doubles>&, const Doubles&)> backward;
  // The same formula over complex numbers, for the complex step; null: central differences instead.
  std::function<Complexes(const std::vector<Complexes>&)> complex_forward;
  Bound forward_bound;
  Bound backward_bound;
  // Proving the oracle's gradient costs one forward per input element: off for large cases.
  bool prove_oracle = true;
};

// Of an empty batch, whose oracle needs no formula: `zeros` zeros come out, and gradients are zeros.
OpCheck empty_batch_check(const std::string& name, const std::vector<HostTensor>& inputs,
                          const std::function<Var(const std::vector<Var>&)>& op, std::size_t zeros = 0);

// The check of an op that adds its result to another input, the last one: `addend` is as the output; `op` takes it too.
OpCheck with_addend(OpCheck check, const HostTensor& addend,
                    const std::function<Var(const std::vector<Var>&)>& op);

// What one check found. Errors are the worst element's, in units of its bound: at most 1 where all is well.
struct OpReport {
  double forward_error = 0.0;
  double gradient_error = 0.0;
  bool has_gradient = false;
  bool oracle_proved = false;  // false also where the check does not ask for the proof
  bool deterministic = true;
  bool is_of_empty_batch = false;   // an input or the output has no element
  std::vector<std::string> faults;  // each names the check, what was compared, and the element
};

// Everything above, with random, expanded (all ones) and sliced upstream gradients, accumulation, each
// gradient alone, and two inputs that are one variable; the same bits over `runs` runs with the default
// thread count, and with 1, 2 and 7 threads.
OpReport measure_op(const Device& device, const OpCheck& check, int runs);

struct Closeness {
  double worst = 0.0;  // the worst element's error in units of its bound
  std::string fault;   // empty where no element is out of its bound
};
Closeness closeness(const std::string& what, const HostTensor& found, const Doubles& wanted, Bound bound);

// Empty if `work` gives equal bytes each time, over `runs` runs and with 1, 2 and 7 threads.
std::string bits_fault(const std::string& what, const std::function<std::vector<Buffer>()>& work, int runs);

// While it lives, outputs of the device start as NaN.
class Poison {
 public:
  explicit Poison(const Device& device) : device_(device) { device_.poison_uninitialized(true); }
  ~Poison() { device_.poison_uninitialized(false); }
  Poison(const Poison&) = delete;
  Poison& operator=(const Poison&) = delete;

 private:
  Device device_;
};

}  // namespace mixtape::testing
