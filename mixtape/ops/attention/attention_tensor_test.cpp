// The kernels for matrix units, on the simulator: they are part of this program, and with those of warp groups of
// attention_group_test alone.
#include <cmath>

#include "mixtape/ops/attention/attention.h"
#include "mixtape/ops/attention/attention_cuda.cu"
#include "mixtape/ops/attention/attention_oracle.h"
#include "mixtape/ops/layout/layout.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using oracle::AttentionCase;
using testing::Doubles;

Buffer sim_input(const Shape& shape, std::uint64_t seed, DType dtype = DType::bf16) {
  return upload(Device::open("sim"), testing::random_tensor(dtype, shape, seed));
}

AttentionOptions options_of(const AttentionCase& c) {
  AttentionOptions o{.scale = static_cast<float>(c.scale), .causal = c.causal, .sliding_window = c.window};
  if (!c.lengths.empty()) {
    const std::vector<std::int32_t> lengths(c.lengths.begin(), c.lengths.end());
    o.lengths = Buffer::from(Device::open("sim"), {c.batch}, lengths);
  }
  return o;
}

void check(AttentionCase c, DType dtype = DType::bf16) {
  c.scale = static_cast<double>(static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim))));
  const Shape q_shape{c.batch, c.q_len, c.q_heads, c.head_dim},
      k_shape{c.batch, c.k_len, c.kv_heads, c.head_dim};
  const Buffer q = sim_input(q_shape, 1, dtype), k = sim_input(k_shape, 2, dtype),
               v = sim_input(k_shape, 3, dtype), dy = sim_input(q_shape, 4, dtype);
  Tape tape(Device::open("sim"));
  const Var vq = tape.parameter(q), vk = tape.parameter(k), vv = tape.parameter(v);
  const Var sinks = c.has_sinks ? tape.parameter(sim_input({c.q_heads}, 5, DType::f32)) : Var();
  const Var y = attention(vq, vk, vv, options_of(c), sinks);
  tape.backward(y, dy);
  const auto values = [](const Buffer& b) { return testing::download(b).values; };
  // Weights and their gradients are rounded to 16 bits, in bf16 by 2^-9; values are at most 5, sums of
  // weights a few.
  const double part = epsilon(dtype) / epsilon(DType::bf16);
  const Doubles sink_values = c.has_sinks ? values(sinks.value()) : Doubles();
  testing::expect_close("y", y.value(), oracle::attention(c, values(q), values(k), values(v), sink_values),
                        {1.0, 0.01 * part});
  const auto wanted = oracle::attention_backward(c, values(q), values(k), values(v), values(dy), sink_values);
  testing::expect_close("dq", vq.grad(), wanted[0], {1.0, 0.03 * part});
  testing::expect_close("dk", vk.grad(), wanted[1], {1.0, 0.03 * part});
  testing::expect_close("dv", vv.grad(), wanted[2], {1.0, 0.03 * part});
  if (c.has_sinks) testing::expect_close("dsinks", sinks.grad(), wanted[3], {1.0, 0.03 * part});
}

TEST(AttentionTensor, Causal) {
  check({.batch = 1, .q_len = 140, .k_len = 150, .q_heads = 2, .kv_heads = 1, .head_dim = 64});
}

TEST(AttentionTensor, HalfPrecision) {
  check({.batch = 1, .q_len = 70, .k_len = 80, .q_heads = 2, .kv_heads = 1, .head_dim = 64}, DType::f16);
}

TEST(AttentionTensor, WindowAndLengths) {
  check({.batch = 2,
         .q_len = 70,
         .k_len = 133,
         .q_heads = 1,
         .kv_heads = 1,
         .head_dim = 40,
         .window = 50,
         .lengths = {133, 61}});
}

TEST(AttentionTensor, Sinks) {
  AttentionCase c{.batch = 2, .q_len = 70, .k_len = 133, .q_heads = 2, .kv_heads = 1, .head_dim = 64};
  c.has_sinks = true;
  check(c);
  c.head_dim = 40;
  c.window = 50;
  c.lengths = {133, 61};
  check(c);
  c.head_dim = 256;
  check(c, DType::f16);
}

TEST(AttentionTensor, GradientsAreAddedWhereWanted) {
  const Shape shape{1, 70, 2, 16};
  const Buffer q = sim_input(shape, 1), k = sim_input(shape, 2), v = sim_input(shape, 3),
               dy = sim_input(shape, 4);
  const Device device = Device::open("sim");
  const Buffer y = device.alloc(DType::bf16, shape), lse = device.alloc(DType::f32, {1, 2, 70});
  CommandEncoder encoder(device);
  attention_forward(encoder, q, k, v, {}, y, lse);
  const auto gradient = [&](int which, Accumulate accumulate) {
    Backward::Target targets[3];
    targets[which] = {sim_input(shape, 5), accumulate};
    attention_backward(encoder, q, k, v, {}, y, lse, dy, targets[0], targets[1], targets[2]);
    encoder.commit_and_wait();
    return testing::download(targets[which].buffer);
  };
  const Doubles before = testing::download(sim_input(shape, 5)).values;
  for (int which = 0; which < 3; ++which) {
    Doubles wanted = gradient(which, Accumulate::no).values;
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += before[i];
    // The sum is rounded once, its part here twice.
    testing::expect_close("gradient", gradient(which, Accumulate::yes), wanted, {2.0, 0.05});
  }
}

// Positions of a cache that are not there yet, NaN here, are not read.
TEST(AttentionTensor, FirstPositionsOfACache) {
  const Device device = Device::open("sim");
  const Buffer q = sim_input({2, 5, 2, 64}, 1), k = sim_input({2, 150, 1, 64}, 2),
               v = sim_input({2, 150, 1, 64}, 3);
  const auto attend = [&](const Buffer& keys, const Buffer& values, std::int64_t count) {
    const Buffer y = device.alloc(DType::bf16, q.shape()), lse = device.alloc(DType::f32, {2, 2, 5});
    CommandEncoder encoder(device);
    attention_forward(encoder, q, keys, values, {.key_count = count}, y, lse);
    encoder.commit_and_wait();
    return testing::download(y).values;
  };
  const auto cached = [&](const Buffer& x) {
    const Buffer all = device.alloc_uninitialized(DType::bf16, {2, 161, 1, 64});
    CommandEncoder encoder(device);
    encoder.fill(all, std::nanf(""));
    concat_forward(encoder, x, 1, 0, all);
    encoder.commit_and_wait();
    return all;
  };
  EXPECT_EQ(attend(cached(k), cached(v), 150), attend(k, v, 0));
}

TEST(AttentionTensor, BadLengthIsReported) {
  const Buffer q = sim_input({2, 3, 1, 8}, 1);
  const Device device = Device::open("sim");
  const Buffer y = device.alloc(DType::bf16, q.shape()), lse = device.alloc(DType::f32, {2, 1, 3});
  CommandEncoder encoder(device);
  attention_forward(encoder, q, q, q, {.lengths = Buffer::from(device, {2}, std::vector<std::int32_t>{3, 4})},
                    y, lse);
  MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range, "4");
  const Doubles values = testing::download(y).values;
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i] == 0.0, i >= 24) << i;
}

TEST(AttentionTensor, WideHeads) {
  check(
      {.batch = 1, .q_len = 33, .k_len = 70, .q_heads = 1, .kv_heads = 1, .head_dim = 128, .causal = false});
  check(
      {.batch = 1, .q_len = 33, .k_len = 70, .q_heads = 1, .kv_heads = 1, .head_dim = 248, .causal = false});
}

}  // namespace
}  // namespace mixtape
