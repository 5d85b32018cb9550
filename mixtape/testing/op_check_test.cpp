#include "mixtape/testing/op_check.h"

#include <gmock/gmock.h>
#include <omp.h>

#include <cmath>

#include "mixtape/testing/check_op.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape::testing {
namespace {

using Rule = std::function<void(Backward&)>;
constexpr int kRuns = 3;

// dx = 2 dy.
void twice_dy(Backward& b) {
  const auto [dx, accumulate] = b.grad(0);
  if (accumulate == Accumulate::no) b.encoder().fill(dx, 0.0f);
  b.encoder().accumulate(b.dy(), dx);
  b.encoder().accumulate(b.dy(), dx);
}

// y = 2 x, made of the encoder's own words.
OpCheck twice(const Rule& rule = twice_dy, const std::function<void(const Var&, const Buffer&)>& spoil = {}) {
  OpCheck check;
  check.name = "twice";
  check.inputs = {random_tensor(DType::f32, {7}, 1)};
  check.op = [=](const std::vector<Var>& v) {
    Tape& tape = v[0].tape();
    const Buffer y = tape.alloc(v[0].dtype(), v[0].shape());
    tape.encoder().copy(v[0].value(), y);
    tape.encoder().accumulate(v[0].value(), y);
    if (spoil) spoil(v[0], y);
    return tape.record("twice", v, y, rule);
  };
  check.forward = [](const std::vector<Doubles>& x) {
    Doubles y = x[0];
    for (double& v : y) v *= 2.0;
    return y;
  };
  check.backward = [](const std::vector<Doubles>&, const Doubles& dy) -> std::vector<Doubles> {
    Doubles dx = dy;
    for (double& v : dx) v *= 2.0;
    return {dx};
  };
  return check;
}

// The first fault that the check finds contains the text.
void expect_fault(const OpCheck& check, const std::string& text) {
  for (const Device& device : test_devices()) {
    const OpReport report = measure_op(device, check, kRuns);
    ASSERT_FALSE(report.faults.empty()) << "expected: " << text;
    EXPECT_NE(report.faults[0].find(text), std::string::npos) << report.faults[0];
  }
}

TEST(OpCheck, RightOpHasNoFault) {
  for (const Device& device : test_devices()) {
    const OpReport report = measure_op(device, twice(), kRuns);
    EXPECT_TRUE(report.faults.empty()) << report.faults[0];
    EXPECT_EQ(report.forward_error, 0.0);
    EXPECT_LE(report.gradient_error, 1.0);
    EXPECT_TRUE(report.has_gradient);
    EXPECT_TRUE(report.oracle_proved);
    EXPECT_TRUE(report.deterministic);
  }
}

TEST(OpCheck, OpWithoutGradient) {
  OpCheck check = twice({});
  check.backward = nullptr;
  const OpReport report = measure_op(Device::cpu(), check, kRuns);
  EXPECT_TRUE(report.faults.empty());
  EXPECT_FALSE(report.has_gradient);
  EXPECT_FALSE(report.oracle_proved);
}

// The simulator refuses to read what nothing wrote; other devices show the poison.
TEST(OpCheck, FindsAnElementThatIsNotWritten) {
  OpCheck check = twice();
  check.op = [](const std::vector<Var>& v) {
    const Buffer y = v[0].tape().alloc(v[0].dtype(), v[0].shape());
    v[0].tape().encoder().copy(v[0].value().slice(0, 6), y.slice(0, 6));
    v[0].tape().encoder().accumulate(v[0].value().slice(0, 6), y.slice(0, 6));
    return v[0].tape().record("twice", v, y, twice_dy);
  };
  const OpReport report = measure_op(Device::cpu(), check, kRuns);
  ASSERT_FALSE(report.faults.empty());
  EXPECT_THAT(report.faults[0], ::testing::MatchesRegex("twice forward: element 6 is -?nan, expected .*"));
}

TEST(OpCheck, FindsAWrongValue) {
  expect_fault(
      twice(twice_dy, [](const Var& x,
                         const Buffer& y) { x.tape().encoder().copy(x.value().slice(3, 4), y.slice(3, 4)); }),
      "twice forward: element 3 is ");
}

TEST(OpCheck, FindsAWrongGradient) {
  expect_fault(twice([](Backward& b) { b.pass(0, b.dy()); }), "twice backward, input 0: element ");
}

TEST(OpCheck, FindsAMissingGradient) {
  expect_fault(twice([](Backward& b) { b.pass_nothing(0); }), "twice backward, input 0: no gradient");
}

// y = a + b, whose gradients come by `rule`.
OpCheck sum_of_two(const Rule& rule) {
  OpCheck check = twice();
  check.inputs.push_back(random_tensor(DType::f32, {7}, 2));
  check.op = [rule](const std::vector<Var>& v) {
    Tape& tape = v[0].tape();
    const Buffer y = tape.alloc(v[0].dtype(), v[0].shape());
    tape.encoder().copy(v[0].value(), y);
    tape.encoder().accumulate(v[1].value(), y);
    return tape.record("sum of two", v, y, rule);
  };
  check.forward = [](const std::vector<Doubles>& x) {
    Doubles y = x[0];
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[1][i];
    return y;
  };
  check.backward = [](const std::vector<Doubles>&, const Doubles& dy) -> std::vector<Doubles> {
    return {dy, dy};
  };
  return check;
}

TEST(OpCheck, FindsAGradientThatNeedsTheOther) {
  const Rule rule = [](Backward& b) {
    b.pass(0, b.dy());
    if (b.wants(0)) b.pass(1, b.dy());
    if (!b.wants(0)) b.grad_for_partial(1);
  };
  expect_fault(sum_of_two(rule), "input 1: wanted alone, its gradient is not what it is among the others");
}

TEST(OpCheck, FindsAGradientThatIsLostWhereInputsAreOneVariable) {
  const Rule rule = [](Backward& b) {
    const Backward::Target first = b.grad(0), second = b.grad(1);
    if (second.buffer && first.buffer && overlap(first.buffer, second.buffer)) {
      b.encoder().copy(b.dy(), first.buffer);
      return;
    }
    for (const auto& [dx, accumulate] : {first, second}) {
      if (dx && accumulate == Accumulate::no) b.encoder().copy(b.dy(), dx);
      if (dx && accumulate == Accumulate::yes) b.encoder().accumulate(b.dy(), dx);
    }
  };
  expect_fault(sum_of_two(rule), "inputs 0 and 1 are one variable: element ");
}

TEST(OpCheck, KnowsAnEmptyBatch) {
  OpCheck check = twice();
  EXPECT_FALSE(measure_op(Device::cpu(), check, kRuns).is_of_empty_batch);
  check.inputs = {random_tensor(DType::f32, {0}, 1)};
  const OpReport report = measure_op(Device::cpu(), check, kRuns);
  EXPECT_TRUE(report.faults.empty()) << report.faults[0];
  EXPECT_TRUE(report.is_of_empty_batch);
}

TEST(OpCheck, FindsAGradientThatOverwrites) {
  const Rule rule = [](Backward& b) {
    const Buffer dx = b.grad(0).buffer;
    b.encoder().copy(b.dy(), dx);
    b.encoder().accumulate(b.dy(), dx);
  };
  expect_fault(twice(rule), "twice backward, accumulated, input 0: element ");
}

TEST(OpCheck, FindsAWrongOracle) {
  OpCheck check = twice([](Backward& b) { b.pass(0, b.dy()); });
  check.backward = [](const std::vector<Doubles>&, const Doubles& dy) -> std::vector<Doubles> {
    return {dy};
  };
  expect_fault(check, "twice: the oracle's gradient of input 0, element 0 is ");
}

TEST(OpCheck, FindsBitsThatChange) {
  int calls = 0;
  OpCheck check = twice(twice_dy, [&](const Var& x, const Buffer& y) {
    x.tape().encoder().fill(y.slice(0, 1), ++calls % 10 == 0 ? 1.0f : 2.0f);
  });
  check.forward_bound.absolute = 10.0;
  for (const Device& device : test_devices()) {
    const OpReport report = measure_op(device, check, 20);
    ASSERT_EQ(report.faults.size(), 1u);
    EXPECT_FALSE(report.deterministic);
  }
}

TEST(OpCheck, FindsBitsThatFollowTheThreadCount) {
  OpCheck check = twice({}, [](const Var& x, const Buffer& y) {
    if (omp_get_max_threads() == 7) x.tape().encoder().copy(x.value(), y);
  });
  check.backward = nullptr;
  expect_fault(check, "twice: the bits differ with 7 threads");
}

TEST(OpCheck, IdsMustBeExact) {
  const HostTensor found{DType::u32, {2}, {3.0, 4.0}};
  EXPECT_EQ(closeness("ids", found, {3.0, 4.0}, {1.0, 0.0}).worst, 0.0);
  EXPECT_NE(closeness("ids", found, {3.0, 5.0}, {1.0, 0.0}).fault.find("element 1 is 4, expected 5"),
            std::string::npos);
}

TEST(OpCheck, RegistryIsSorted) {
  const auto build = [](const Device&, DType) { return std::vector<OpCheck>{twice()}; };
  register_op_checks({"zeta", {DType::f32}, build});
  register_op_checks({"alpha", {DType::f32}, build});
  const std::vector<OpChecks> all = all_op_checks();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].op, "alpha");
  EXPECT_EQ(all[1].op, "zeta");
}

}  // namespace
}  // namespace mixtape::testing
