// One check for every op: forward and gradient against a double-precision oracle, the oracle's gradient
// against its own forward, outputs poisoned beforehand, the same bits over runs and thread counts.
#pragma once

#include <gtest/gtest.h>

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

using Doubles = std::vector<double>;
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
  // none).
  std::function<std::vector<Doubles>(const std::vector<Doubles>&, const Doubles&)> backward;
  // The same formula over complex numbers, for the complex step; null: central differences instead.
  std::function<Complexes(const std::vector<Complexes>&)> complex_forward;
  Bound forward_bound;
  Bound backward_bound;
  // Proving the oracle's gradient costs one forward per input element: off for large cases.
  bool prove_oracle = true;
};

// Everything above, with random, expanded (all ones) and sliced upstream gradients, and accumulation.
void check_op(const Device& device, const OpCheck& check);

// Reports the worst element in units of its bound.
void expect_close(const std::string& what, const HostTensor& found, const Doubles& wanted, Bound bound);
void expect_close(const std::string& what, const Buffer& found, const Doubles& wanted, Bound bound);

// Runs `work` `runs` times with the default thread count and once with 1, 2 and 7 threads: equal bytes each
// time.
void expect_same_bits(const std::string& what, const std::function<std::vector<Buffer>()>& work,
                      int runs = 20);

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

// EXPECT that `statement` throws Error with this code and a message that contains the text.
#define MIXTAPE_EXPECT_ERROR(statement, wanted_code, text)                                 \
  do {                                                                                     \
    try {                                                                                  \
      statement;                                                                           \
      ADD_FAILURE() << "no error, expected one containing: " << (text);                    \
    } catch (const ::mixtape::Error& error) {                                              \
      EXPECT_EQ(::mixtape::name(error.code()), std::string(::mixtape::name(wanted_code))); \
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();  \
    }                                                                                      \
  } while (false)

// The devices that tests run on: those that MIXTAPE_TEST_DEVICES names ("cpu,sim"), or the CPU.
std::vector<Device> test_devices();
// Their names, as parameters of a test.
std::vector<std::string> test_device_names();

}  // namespace mixtape::testing
