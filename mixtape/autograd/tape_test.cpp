#include "mixtape/autograd/tape.h"

#include <cmath>

#include "mixtape/autograd/tape_test_ops.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

// The first element, whose gradient touches a part of its input.
Var head(const Var& x) {
  return x.tape().record("head", {x}, x.value().slice(0, 1), [](Backward& b) {
    b.encoder().accumulate(b.dy(), b.grad_for_partial(0).slice(0, 1));
  });
}

class TapeTest : public ::testing::Test {
 protected:
  Device device = Device::cpu();
  Tape tape{device};
  std::size_t live() const { return device.memory_stats().live_bytes; }
};

TEST_F(TapeTest, F1_TiedWeightSumsItsContributions) {
  const Var w = tape.parameter(values(device, {3, -2}));
  const Var x = tape.parameter(values(device, {5, 7}));
  const Var y = times(times(x, w), w);  // x w^2
  tape.backward(y, values(device, {1, 10}));
  EXPECT_EQ(w.grad().to_vector<float>(), (Values{30, -280}));  // 2 x w
  EXPECT_EQ(x.grad().to_vector<float>(), (Values{9, 40}));
}

TEST_F(TapeTest, F1_SecondBackwardAddsToTheLeaf) {
  const Var w = tape.parameter(values(device, {3}));
  const Var x = tape.constant(values(device, {5}));
  tape.backward(times(x, w));
  tape.backward(times(x, w));
  EXPECT_EQ(w.grad().to_vector<float>(), Values{10});
  w.clear_grad();
  EXPECT_FALSE(w.grad());
  tape.backward(times(x, w));
  EXPECT_EQ(w.grad().to_vector<float>(), Values{5});
}

// Passing dy on must not let one input's sum leak into the other's, or into dy.
TEST_F(TapeTest, F1_SharedGradientIsCopiedBeforeItIsAddedTo) {
  const Var a = tape.parameter(values(device, {1}));
  const Var b = tape.parameter(values(device, {2}));
  const Buffer dy = values(device, {10});
  tape.backward(plus(plus(a, b), a), dy);
  EXPECT_EQ(a.grad().to_vector<float>(), Values{20});
  EXPECT_EQ(b.grad().to_vector<float>(), Values{10});
  EXPECT_EQ(dy.to_vector<float>(), Values{10});
  tape.backward(plus(a, b), dy);
  EXPECT_EQ(a.grad().to_vector<float>(), Values{30});
  EXPECT_EQ(b.grad().to_vector<float>(), Values{20});
  EXPECT_EQ(dy.to_vector<float>(), Values{10});
}

TEST_F(TapeTest, DiamondWaitsForAllItsConsumers) {
  const Var x = tape.parameter(values(device, {3}));
  const Var h = times(x, x);
  tape.backward(plus(times(h, h), h));  // x^4 + x^2
  EXPECT_EQ(x.grad().to_vector<float>(), Values{4 * 27 + 6});
}

TEST_F(TapeTest, F2_UpstreamGradientIsASlice) {
  const Var x = tape.parameter(values(device, {1, 2}));
  const Var w = tape.constant(values(device, {3, 4}));
  const Buffer all = values(device, {100, 5, 6, 100});
  tape.backward(times(x, w), all.slice(1, 3));
  EXPECT_EQ(x.grad().to_vector<float>(), (Values{15, 24}));
  tape.backward(times(x, w), all.slice(1, 3));
  EXPECT_EQ(x.grad().to_vector<float>(), (Values{30, 48}));
  EXPECT_EQ(all.to_vector<float>(), (Values{100, 5, 6, 100}));
}

TEST_F(TapeTest, F2_PartialGradientStartsFromZero) {
  const testing::Poison poison(device);
  const Var x = tape.parameter(values(device, {1, 2, 3}));
  tape.backward(plus(head(x), head(x)), values(device, {7}));
  EXPECT_EQ(x.grad().to_vector<float>(), (Values{14, 0, 0}));
}

TEST_F(TapeTest, F4_OpWithoutBackwardIsRefusedAtRecordTime) {
  const Var x = tape.parameter(values(device, {1}));
  MIXTAPE_EXPECT_ERROR(tape.record("round", {x}, x.value(), nullptr), ErrorCode::not_supported,
                       "round: has no backward, but an input requires a gradient");
  const Var y = tape.record("round", {x.detach()}, x.value(), nullptr);
  EXPECT_FALSE(y.requires_grad());
  const NoGrad guard(tape);
  EXPECT_FALSE(tape.record("round", {x}, x.value(), nullptr).requires_grad());
}

TEST_F(TapeTest, F4_EveryLeafOfALongGraphGetsAGradient) {
  std::vector<Var> weights;
  Var h = tape.constant(values(device, {1, 1}));
  for (int i = 0; i < 12; ++i) {
    weights.push_back(tape.parameter(values(device, {1.5f, -0.5f})));
    h = plus(h, times(h, weights.back()));
  }
  tape.backward(h, values(device, {1, 1}));
  for (const Var& w : weights) {
    ASSERT_TRUE(w.grad());
    for (const float g : w.grad().to_vector<float>()) EXPECT_TRUE(std::isfinite(g) && g != 0.0f);
  }
}

TEST_F(TapeTest, OnlyWhatLeadsToAParameterIsRecorded) {
  const Var c = tape.constant(values(device, {2}));
  const Var d = times(c, c);
  EXPECT_FALSE(d.requires_grad());
  MIXTAPE_EXPECT_ERROR(tape.backward(d), ErrorCode::invalid_argument, "no parameter leads to f32[1]");
  const Var x = tape.parameter(values(device, {3}));
  tape.backward(times(d, x));
  EXPECT_EQ(x.grad().to_vector<float>(), Values{4});
  EXPECT_FALSE(c.grad());
}

TEST_F(TapeTest, DetachCutsAndLookingDoesNot) {
  const Var x = tape.parameter(values(device, {3}));
  const Var h = times(x, x);
  EXPECT_EQ(h.value().to_vector<float>(), Values{9});
  tape.backward(times(h, h.detach()));
  EXPECT_EQ(x.grad().to_vector<float>(), Values{9 * 6});
}

TEST_F(TapeTest, NoGradRecordsNothingAndNests) {
  const Var x = tape.parameter(values(device, {3}));
  {
    const NoGrad outer(tape);
    {
      const NoGrad inner(tape);
      EXPECT_FALSE(times(x, x).requires_grad());
    }
    EXPECT_FALSE(tape.is_recording());
    EXPECT_FALSE(times(x, x).requires_grad());
  }
  EXPECT_TRUE(times(x, x).requires_grad());
}

TEST_F(TapeTest, DroppedGraphFreesItsMemory) {
  const Var x = tape.parameter(values(device, Values(1024, 1.0f)));
  const std::size_t before = live();
  {
    Var h = times(x, x);
    for (int i = 0; i < 5; ++i) h = plus(times(h, x), h);
    EXPECT_GT(live(), before + 5 * 4096);
  }
  EXPECT_EQ(live(), before);
}

TEST_F(TapeTest, BackwardFreesActivationsAndGradientsOnTheWay) {
  constexpr std::int64_t kBytes = 1 << 20;
  const Var x = tape.parameter(device.alloc(DType::f32, {kBytes / 4}));
  const Var w = tape.constant(device.alloc(DType::f32, {kBytes / 4}));
  const std::size_t before = live();
  Var h = x;
  for (int i = 0; i < 16; ++i) h = times(h, w);
  const Buffer dy = device.alloc(DType::f32, h.shape());
  device.reset_peak();
  const std::size_t forward = live();
  EXPECT_GE(forward, before + 16 * kBytes);
  tape.backward(h, dy);
  EXPECT_LE(device.memory_stats().peak_bytes, forward + 2 * kBytes);
  EXPECT_LE(live(), before + 3 * kBytes);  // h, dy and the gradient of x
}

TEST_F(TapeTest, SecondBackwardOverAWalkedGraphIsAnError) {
  const Var x = tape.parameter(values(device, {3}));
  const Var h = times(x, x);
  const Var y = times(h, h);
  tape.backward(y);
  MIXTAPE_EXPECT_ERROR(tape.backward(y), ErrorCode::invalid_argument, "walked already");
  MIXTAPE_EXPECT_ERROR(tape.backward(times(h, x)), ErrorCode::invalid_argument,
                       "times leads to a part of the graph that was walked already");
}

// 10,000 ops, freed and walked without recursion; an input named twice included.
TEST_F(TapeTest, LongChain) {
  const Var x = tape.parameter(values(device, {1}));
  for (const bool walk : {false, true}) {
    Var h = x;
    for (int i = 0; i < 10000; ++i) h = plus(h, x);
    if (walk) tape.backward(h);
  }
  EXPECT_EQ(x.grad().to_vector<float>(), Values{10001});
  Var h = x;
  for (int i = 0; i < 100000; ++i) h = times(h, h);
  h = Var();
}

Var block(const Var& x, const Var& w) { return plus(x, times(times(x, w), x)); }

TEST_F(TapeTest, CheckpointGivesTheSameBytes) {
  const Values start = {0.3f, -1.7f, 2.1f};
  std::vector<Values> found;
  for (const bool use_checkpoint : {false, true}) {
    const Var x = tape.parameter(values(device, start));
    const Var w = tape.parameter(values(device, {1.1f, 0.7f, -0.9f}));
    Var h = times(x, w);
    for (int i = 0; i < 3; ++i) {
      if (use_checkpoint) {
        h = tape.checkpoint({h}, [w](const std::vector<Var>& v) { return block(v[0], w); });  // captures w
      } else {
        h = block(h, w);
      }
    }
    tape.backward(h, values(device, {1, 2, 3}));
    for (const Buffer& b : {h.value(), x.grad(), w.grad()}) found.push_back(b.to_vector<float>());
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(found[i], found[i + 3]) << i;
}

TEST_F(TapeTest, CheckpointOfConstantInputReachesItsParameters) {
  const Var x = tape.constant(values(device, {2}));
  const Var w = tape.parameter(values(device, {3}));
  const Var y = tape.checkpoint({x}, [w](const std::vector<Var>& v) { return times(times(v[0], w), w); });
  tape.backward(y);
  EXPECT_EQ(w.grad().to_vector<float>(), Values{12});
  const Var none = tape.checkpoint({x}, [](const std::vector<Var>& v) { return times(v[0], v[0]); });
  EXPECT_FALSE(none.requires_grad());
}

TEST_F(TapeTest, CheckpointsNest) {
  const Var x = tape.parameter(values(device, {2}));
  const Var w = tape.parameter(values(device, {3}));
  const auto inner = [w](const std::vector<Var>& v) { return times(v[0], w); };
  const Var y = tape.checkpoint(
      {x}, [this, inner](const std::vector<Var>& v) { return times(tape.checkpoint({v[0]}, inner), v[0]); });
  tape.backward(y);
  EXPECT_EQ(x.grad().to_vector<float>(), Values{12});
  EXPECT_EQ(w.grad().to_vector<float>(), Values{4});
}

TEST_F(TapeTest, CheckpointKeepsOnlyItsInputs) {
  const Var x = tape.parameter(values(device, Values(1024, 1.0f)));
  const std::size_t before = live();
  const Var y = tape.checkpoint({x}, [](const std::vector<Var>& v) {
    Var h = v[0];
    for (int i = 0; i < 10; ++i) h = times(h, v[0]);
    return h;
  });
  EXPECT_EQ(live(), before + 4096);
  tape.backward(y, y.value());
  EXPECT_EQ(x.grad().to_vector<float>(), Values(1024, 11.0f));
}

TEST_F(TapeTest, RefusesBadArguments) {
  const auto code = ErrorCode::invalid_argument;
  const Var x = tape.parameter(values(device, {1, 2}));
  MIXTAPE_EXPECT_ERROR(tape.parameter(device.alloc(DType::u32, {2})), code, "parameter: u32[2]");
  MIXTAPE_EXPECT_ERROR(tape.parameter(Buffer()), code, "parameter: null");
  MIXTAPE_EXPECT_ERROR(tape.constant(Buffer()), code, "constant: buffer is null");
  MIXTAPE_EXPECT_ERROR(tape.backward(times(x, x)), code, "loss is f32[2], expected one element");
  MIXTAPE_EXPECT_ERROR(tape.backward(x, values(device, {1})), code,
                       "upstream gradient is f32[1], expected f32[2]");
  MIXTAPE_EXPECT_ERROR(tape.backward(Var()), code, "loss is null");
  Tape other(device);
  MIXTAPE_EXPECT_ERROR(times(x, other.constant(x.value())), code, "times: inputs are on two tapes");
  MIXTAPE_EXPECT_ERROR(times(x, Var()), code, "times: an input is null");
  MIXTAPE_EXPECT_ERROR(Var().tape(), code, "var: null");
}

}  // namespace
}  // namespace mixtape
