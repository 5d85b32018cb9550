#include "mixtape/ops/gated_delta_rule/gated_delta_rule.h"

#include <cmath>

#include "mixtape/ops/gated_delta_rule/gated_delta_rule_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using oracle::DeltaCase;
using testing::Doubles;
using testing::HostTensor;

TEST(GatedDeltaRule, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, gated_delta_rule_checks(device, dtype));
  }
}

// Chunks against the oracle's single steps: lengths around whole chunks, several of them, and dims that fill no tile,
// one and several.
TEST(GatedDeltaRule, ChunksAreTheRecurrence) {
  for (const Device& device : testing::test_devices()) {
    for (const std::int64_t length : {63, 64, 65, 130}) {
      if (device.name() == "sim" && length != 65) continue;  // minutes
      check_op(device, gated_delta_rule_check(DType::f32,
                                              {.batch = 1,
                                               .length = length,
                                               .key_heads = 1,
                                               .value_heads = 2,
                                               .key_dim = 16,
                                               .value_dim = 24,
                                               .scale = 0.25},
                                              length == 65));
    }
    check_op(device,
             gated_delta_rule_check(DType::bf16,
                                    {.batch = 1,
                                     .length = 66,
                                     .key_heads = 1,
                                     .value_heads = 1,
                                     .key_dim = 130,
                                     .value_dim = 70,
                                     .scale = 0.1},
                                    true),
             2);
    if (device.name() == "sim") continue;  // minutes
    check_op(device, gated_delta_rule_check(DType::bf16,
                                            {.batch = 2,
                                             .length = 200,
                                             .key_heads = 2,
                                             .value_heads = 4,
                                             .key_dim = 128,
                                             .value_dim = 128,
                                             .scale = 0.1},
                                            true));
    check_op(
        device,
        gated_delta_rule_check(
            DType::bf16,
            {.length = 129, .key_heads = 1, .value_heads = 3, .key_dim = 64, .value_dim = 72, .scale = 0.125},
            false));
  }
}

std::vector<Buffer> uploaded(const Device& device, const std::vector<HostTensor>& tensors) {
  std::vector<Buffer> all;
  for (const HostTensor& t : tensors) all.push_back(upload(device, t));
  return all;
}

// Positions [begin, end) of a tensor of one sequence.
HostTensor positions_of(const HostTensor& t, std::int64_t begin, std::int64_t end) {
  const std::int64_t row = t.shape.numel() / t.shape[1];
  std::vector<std::int64_t> dims = t.shape.dims();
  dims[1] = end - begin;
  return {t.dtype, Shape(dims), Doubles(t.values.begin() + begin * row, t.values.begin() + end * row)};
}

struct Part {
  Buffer y, final_state;
  std::vector<Buffer> gradients;  // of q, k, v, g, beta, initial
};

// Forward and backward by buffers.
Part run_part(const Device& device, const DeltaRuleInputs& in, const Buffer& dy, const Buffer& dfinal) {
  const auto like = [&](const Buffer& b) { return device.alloc_uninitialized(b.dtype(), b.shape()); };
  Part part{like(in.v), like(in.initial), {}};
  const Buffer states =
      device.alloc_uninitialized(DType::f32, gated_delta_rule_states(in.q.shape(), in.v.shape()));
  for (const Buffer& b : {in.q, in.k, in.v, in.g, in.beta, in.initial}) part.gradients.push_back(like(b));
  const std::vector<Buffer>& g = part.gradients;
  constexpr auto kNo = Accumulate::no;
  CommandEncoder encoder(device);
  gated_delta_rule_forward(encoder, in, part.y, part.final_state, states);
  gated_delta_rule_backward(encoder, in, states, dy, dfinal,
                            {{g[0], kNo}, {g[1], kNo}, {g[2], kNo}, {g[3], kNo}, {g[4], kNo}, {g[5], kNo}});
  encoder.commit_and_wait();
  return part;
}

// The final state and its gradient, against the oracle's.
TEST(GatedDeltaRule, FinalStateAndItsGradient) {
  const DeltaCase c{
      .batch = 2, .length = 67, .key_heads = 1, .value_heads = 2, .key_dim = 6, .value_dim = 5, .scale = 0.4};
  const std::vector<HostTensor> tensors = delta_tensors(DType::f32, c, true);
  const HostTensor dy = testing::random_tensor(DType::f32, tensors[2].shape, 8);
  const HostTensor dfinal = testing::random_tensor(DType::f32, tensors[5].shape, 9);
  std::vector<Doubles> values;
  for (const HostTensor& t : tensors) values.push_back(t.values);
  const auto wanted =
      oracle::gated_delta_rule_backward(c, delta_inputs(values), dy.values, dfinal.values).values;
  const DeltaBounds bounds = delta_bounds(c, tensors);
  for (const Device& device : testing::test_devices()) {
    const std::vector<Buffer> b = uploaded(device, tensors);
    const Part part = run_part(device, {b[0], b[1], b[2], b[3], b[4], b[5], static_cast<float>(c.scale)},
                               upload(device, dy), upload(device, dfinal));
    testing::expect_close("final", part.final_state, oracle::gated_delta_rule(c, delta_inputs(values)).state,
                          {1.0, bounds.forward});
    const std::vector<Doubles> all = {wanted.q, wanted.k, wanted.v, wanted.g, wanted.beta, wanted.initial};
    for (std::size_t i = 0; i < all.size(); ++i)
      testing::expect_close(str("gradient ", i), part.gradients[i], all[i], {1.0, bounds.backward});
  }
}

// A prompt, then token by token from the state that it left.
TEST(GatedDeltaRule, StateContinuesASequence) {
  const DeltaCase c{
      .length = 69, .key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 6, .scale = 0.3};
  const std::vector<HostTensor> tensors = delta_tensors(DType::f32, c, false);
  const DeltaBounds bounds = delta_bounds(c, tensors);
  std::vector<Doubles> values;
  for (const HostTensor& t : tensors) values.push_back(t.values);
  const Doubles wanted = oracle::gated_delta_rule(c, delta_inputs(values)).y;
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const NoGrad no_grad(tape);
    Var state;
    Doubles found;
    for (std::int64_t begin = 0, end = 66; begin < c.length; begin = end, ++end) {
      std::vector<Var> v;
      for (const HostTensor& t : tensors)
        v.push_back(tape.constant(upload(device, positions_of(t, begin, end))));
      const DeltaRule out =
          gated_delta_rule(v[0], v[1], v[2], v[3], v[4], state, static_cast<float>(c.scale));
      tape.encoder().commit_and_wait();
      const Doubles part = testing::download(out.y.value()).values;
      found.insert(found.end(), part.begin(), part.end());
      state = tape.constant(out.final_state);
    }
    testing::expect_close("y", HostTensor{DType::f32, Shape{c.length, 4, 6}, found}, wanted,
                          {1.0, bounds.forward});
  }
}

// The state after an update holds the value at its key; beta of 0 leaves it alone, and decays forget.
TEST(GatedDeltaRule, KnownSteps) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const auto constant = [&](const Shape& shape, const std::vector<float>& values) {
      return tape.constant(Buffer::from(device, shape, values));
    };
    const Var keys = constant({1, 3, 1, 2}, {1, 0, 0, 1, 1, 0});
    const Var values = constant({1, 3, 1, 1}, {3, 5, 7});
    const Var g = constant({1, 3, 1}, {0.0f, std::log(0.5f), 0.0f}), beta = constant({1, 3, 1}, {1, 1, 0});
    const DeltaRule out = gated_delta_rule(keys, keys, values, g, beta, Var(), 1.0f);
    tape.encoder().commit_and_wait();
    EXPECT_EQ(out.y.value().to_vector<float>(), (std::vector<float>{3.0f, 5.0f, 1.5f}));
    EXPECT_EQ(out.final_state.to_vector<float>(), (std::vector<float>{1.5f, 5.0f}));
  }
}

// Decays that leave f32 within a chunk: what comes after is as if nothing had been before, and nothing is NaN.
TEST(GatedDeltaRule, ADecayToNothingForgetsAll) {
  DeltaCase c{.length = 40, .key_heads = 1, .value_heads = 1, .key_dim = 4, .value_dim = 3};
  std::vector<HostTensor> tensors = delta_tensors(DType::f32, c, true);
  for (const std::size_t t : {7u, 8u, 20u}) tensors[3].values[t] = -3000.0;
  std::vector<Doubles> values;
  for (const HostTensor& t : tensors) values.push_back(t.values);
  const HostTensor dy = testing::random_tensor(DType::f32, tensors[2].shape, 8);
  const auto gradients = oracle::gated_delta_rule_backward(c, delta_inputs(values), dy.values, {}).values;
  const DeltaBounds bounds = delta_bounds(c, tensors);
  for (const Device& device : testing::test_devices()) {
    const std::vector<Buffer> b = uploaded(device, tensors);
    const Part part = run_part(device, {b[0], b[1], b[2], b[3], b[4], b[5]}, upload(device, dy), Buffer());
    testing::expect_close("y", part.y, oracle::gated_delta_rule(c, delta_inputs(values)).y,
                          {1.0, bounds.forward});
    testing::expect_close("dk", part.gradients[1], gradients.k, {1.0, bounds.backward});
    testing::expect_close("dg", part.gradients[3], gradients.g, {1.0, bounds.backward});
  }
}

TEST(GatedDeltaRule, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const auto buffer = [&](const Shape& shape) { return device.alloc(DType::f32, shape); };
  const Buffer q = buffer({1, 3, 2, 4}), v = buffer({1, 3, 4, 5}), gates = buffer({1, 3, 4});
  const Buffer y = buffer({1, 3, 4, 5}), state = buffer({1, 4, 5, 4});
  const auto code = ErrorCode::invalid_argument;
  const auto forward = [&](const DeltaRuleInputs& in) {
    gated_delta_rule_forward(encoder, in, y, state, Buffer());
  };
  MIXTAPE_EXPECT_ERROR(forward({buffer({1, 3, 2, 257}), q, v, gates, gates}), code, "Dk from 1 to 256");
  MIXTAPE_EXPECT_ERROR(forward({q, buffer({1, 3, 2, 5}), v, gates, gates}), code,
                       "gated_delta_rule: k is f32[1,3,2,5], expected f32[1,3,2,4] like q");
  MIXTAPE_EXPECT_ERROR(forward({q, q, buffer({1, 3, 3, 5}), gates, gates}), code,
                       "gated_delta_rule: v has 3 heads, expected a multiple of the 2 of q");
  MIXTAPE_EXPECT_ERROR(forward({q, q, v, buffer({1, 3, 2}), gates}), code,
                       "gated_delta_rule: g is f32[1,3,2], expected f32[1,3,4]");
  MIXTAPE_EXPECT_ERROR(forward({q, q, v, gates, gates, buffer({1, 4, 4, 5})}), code,
                       "initial is f32[1,4,4,5]");
  MIXTAPE_EXPECT_ERROR(forward({q, q, v, gates, gates, Buffer(), NAN}), code, "scale is nan");
  MIXTAPE_EXPECT_ERROR(
      gated_delta_rule_backward(encoder, {q, q, v, gates, gates}, buffer({1, 4, 2, 5, 4}), y, Buffer(), {}),
      code, "gated_delta_rule_backward: states is f32[1,4,2,5,4], expected f32[1,4,1,5,4]");
}

}  // namespace
}  // namespace mixtape
