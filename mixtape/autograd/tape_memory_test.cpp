// Who owns what on a tape, for how long, and what must not be overwritten.

#include "mixtape/autograd/tape.h"
#include "mixtape/autograd/tape_test_ops.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

constexpr auto kInvalid = ErrorCode::invalid_argument;

class TapeMemory : public ::testing::Test {
 protected:
  Device device = Device::cpu();
  Tape tape{device};
  Var leaf(const Values& v) { return tape.parameter(values(device, v)); }
};

TEST_F(TapeMemory, VarThatOutlivesItsTapeIsRefused) {
  Var x, y;
  {
    Tape gone(device);
    x = gone.parameter(values(device, {3}));
    y = times(x, x);
    gone.backward(y);
  }
  EXPECT_FALSE(x.has_tape());
  EXPECT_EQ(y.value().to_vector<float>(), Values{9});
  EXPECT_EQ(x.grad().to_vector<float>(), Values{6});
  MIXTAPE_EXPECT_ERROR(times(x, x), kInvalid, "times: the tape of f32[1] is gone");
  MIXTAPE_EXPECT_ERROR(times(x.detach(), leaf({1})), kInvalid, "times: the tape of f32[1] is gone");
  MIXTAPE_EXPECT_ERROR(x.tape(), kInvalid, "var: the tape of f32[1] is gone");
  MIXTAPE_EXPECT_ERROR(tape.backward(y), kInvalid, "is gone");
  x.clear_grad();
  EXPECT_FALSE(x.grad());
}

TEST_F(TapeMemory, BackwardRefusesAnotherTapesVar) {
  Tape other(device);
  const Var x = other.parameter(values(device, {3}));
  MIXTAPE_EXPECT_ERROR(tape.backward(times(x, x)), kInvalid, "backward: f32[1] is on another tape");
}

TEST_F(TapeMemory, EachLeafOwnsItsGradient) {
  const Var a = leaf({1}), b = leaf({2}), c = leaf({3});
  const Buffer dy = values(device, {4});
  tape.backward(plus(plus(a, b), c), dy);
  const Buffer da = a.grad(), db = b.grad(), dc = c.grad();
  EXPECT_FALSE(overlap(da, db) || overlap(da, dc) || overlap(db, dc));
  EXPECT_FALSE(overlap(da, dy) || overlap(db, dy) || overlap(dc, dy));
  const Buffer half = values(device, {0.5f});
  for (const Buffer& g : {da, db, dc}) {  // clipped in place, each once
    const Buffer before = values(device, g.to_vector<float>());
    encode_multiply(tape.encoder(), before, half, g, Accumulate::no);
    EXPECT_EQ(g.to_vector<float>(), Values{2});
  }
  EXPECT_EQ(dy.to_vector<float>(), Values{4});
  tape.backward(c, dy);  // the output is the leaf
  EXPECT_FALSE(overlap(c.grad(), dy));
  EXPECT_EQ(c.grad().to_vector<float>(), Values{6});
}

// A gradient that a rule passes on as a slice of another, too.
TEST_F(TapeMemory, SlicedGradientIsTheLeafsOwn) {
  const Var a = leaf({1}), b = leaf({2});
  const Buffer y = values(device, {1, 2});
  const Var both = tape.record("join", {a, b}, y, [](Backward& back) {
    back.pass(0, back.dy().slice(0, 1));
    back.pass(1, back.dy().slice(1, 2));
  });
  const Buffer dy = values(device, {5, 7});
  tape.backward(both, dy);
  EXPECT_EQ(a.grad().to_vector<float>(), Values{5});
  EXPECT_EQ(b.grad().to_vector<float>(), Values{7});
  EXPECT_NE(&a.grad().memory(), &dy.memory());
  EXPECT_NE(&a.grad().memory(), &b.grad().memory());
}

TEST_F(TapeMemory, InsideTheWalkGradientsStayShared) {
  constexpr std::int64_t kBytes = 1 << 20;
  const Var x = tape.parameter(device.alloc(DType::f32, {kBytes / 4}));
  const Var zero = tape.constant(device.alloc(DType::f32, {kBytes / 4}));
  Var h = x;
  for (int i = 0; i < 16; ++i) h = plus(h, zero);
  const Buffer dy = device.alloc(DType::f32, h.shape());
  device.reset_peak();
  const std::size_t before = device.memory_stats().live_bytes;
  tape.backward(h, dy);
  EXPECT_LE(device.memory_stats().peak_bytes, before + kBytes);
}

TEST_F(TapeMemory, WhatAGradientNeedsMustNotBeOverwritten) {
  const auto overwrite = [&](const std::function<void(const Buffer&)>& write) {
    const Var x = leaf({2}), w = leaf({3});
    const Var y = times(x, w);
    write(w.value());
    MIXTAPE_EXPECT_ERROR(tape.backward(y), kInvalid,
                         "backward of times: f32[1], which its gradient needs, was overwritten");
  };
  overwrite([&](const Buffer& w) { tape.encoder().fill(w, 1.0f); });
  overwrite([&](const Buffer& w) { w.copy_from<float>(Values{1}); });
  overwrite([&](const Buffer& w) { w.reshape({1, 1}).slice(0, 1).copy_from<float>(Values{1}); });
  overwrite([&](const Buffer& w) { CommandEncoder(device).fill(w, 1.0f); });
}

TEST_F(TapeMemory, OverwritingIsAllowedWhereNoGradientNeedsIt) {
  const Var x = leaf({2}), w = leaf({3});
  for (int step = 0; step < 3; ++step) {  // an optimizer that updates in place
    tape.backward(times(x, w));
    tape.encoder().accumulate(w.grad(), w.value());
    w.clear_grad();
  }
  const Var sum = plus(x, w);
  tape.encoder().fill(w.value(), 1.0f);  // a sum's gradient needs no input
  tape.backward(sum);
  const Var first = times(x, w), second = times(w, x);
  const Buffer dy = device.alloc(DType::f32, {1});
  dy.copy_from<float>(Values{10});  // the upstream gradient comes after the forward pass
  x.clear_grad();
  tape.backward(first, dy);
  tape.backward(second, dy);  // adds to what the first one left
  EXPECT_EQ(x.grad().to_vector<float>(), Values{20});
}

TEST_F(TapeMemory, CheckpointRefusesAnOverwrittenParameter) {
  const Var x = leaf({2}), w = leaf({3});
  const auto square = [w](const std::vector<Var>& v) { return times(times(v[0], w), w); };
  const Var kept = tape.checkpoint({x}, square);
  tape.backward(kept);
  EXPECT_EQ(w.grad().to_vector<float>(), Values{12});
  const Var stale = tape.checkpoint({x}, square);
  tape.encoder().fill(w.value(), 1.0f);
  MIXTAPE_EXPECT_ERROR(tape.backward(stale), kInvalid, "backward of checkpoint: f32[1], which its gradient");
}

TEST_F(TapeMemory, RuleThatForgetsAnInputIsAnError) {
  const Var a = leaf({1}), b = leaf({2});
  const auto forgetful = [](Backward& back) { back.pass(0, back.dy()); };
  MIXTAPE_EXPECT_ERROR(tape.backward(tape.record("forget", {a, b}, values(device, {3}), forgetful)), kInvalid,
                       "backward of forget: its rule left out the gradient of input 1 f32[1]");
  tape.backward(tape.record("forget", {a, b.detach()}, values(device, {3}), forgetful));
  tape.backward(tape.record("say so", {a, b}, values(device, {3}), [](Backward& back) {
    back.pass(0, back.dy());
    back.pass_nothing(1);
  }));
  EXPECT_FALSE(b.grad());
}

}  // namespace
}  // namespace mixtape
