#include "mixtape/ops/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "mixtape/ops/attention/attention_check.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/launches.h"

namespace mixtape {
namespace {

using oracle::AttentionCase;
using testing::Doubles;

void check_all(const AttentionCase& c, bool on_simulator = true) {
  for (const Device& device : testing::test_devices()) {
    if (!on_simulator && device.name() == "sim") continue;
    for (const DType dtype : testing::kValueDtypes) check_op(device, attention_check(device, dtype, c));
  }
}

TEST(Attention, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, attention_checks(device, dtype));
  }
}

TEST(Attention, HeadDimensions) {
  for (const std::int64_t dim : {8, 34, 80, 128, 256})
    check_all({.batch = 1, .q_len = 9, .k_len = 11, .q_heads = 2, .kv_heads = 1, .head_dim = dim});
}

TEST(Attention, E4_RatiosOfHeads) {
  for (const auto& [q_heads, kv_heads] :
       {std::pair<std::int64_t, std::int64_t>{3, 3}, {4, 2}, {8, 2}, {8, 1}, {7, 1}})
    check_all({.batch = 2, .q_len = 6, .k_len = 6, .q_heads = q_heads, .kv_heads = kv_heads, .head_dim = 8});
}

TEST(Attention, SeveralBlocksOfQueriesAndKeys) {
  check_all({.batch = 1, .q_len = 70, .k_len = 75, .q_heads = 3, .kv_heads = 1, .head_dim = 8});
  check_all(
      {.batch = 1, .q_len = 68, .k_len = 140, .q_heads = 1, .kv_heads = 1, .head_dim = 8, .window = 20});
  check_all(
      {.batch = 2, .q_len = 3, .k_len = 130, .q_heads = 2, .kv_heads = 1, .head_dim = 8, .causal = false});
}

// Past the largest blocks of any device; too much for a simulator.
TEST(Attention, ManyBlocksOfQueriesAndKeys) {
  const std::vector<AttentionCase> cases = {
      {.batch = 1, .q_len = 290, .k_len = 300, .q_heads = 3, .kv_heads = 1, .head_dim = 8},
      {.batch = 1, .q_len = 300, .k_len = 600, .q_heads = 1, .kv_heads = 1, .head_dim = 8, .window = 40},
      {.batch = 2, .q_len = 20, .k_len = 530, .q_heads = 2, .kv_heads = 1, .head_dim = 8, .causal = false},
      {.batch = 1, .q_len = 200, .k_len = 333, .q_heads = 2, .kv_heads = 1, .head_dim = 128},
      {.batch = 2, .q_len = 150, .k_len = 150, .q_heads = 2, .kv_heads = 2, .head_dim = 64, .causal = false},
      {.batch = 2,
       .q_len = 260,
       .k_len = 260,
       .q_heads = 2,
       .kv_heads = 1,
       .head_dim = 64,
       .window = 70,
       .lengths = {200, 31}},
      {.batch = 3,
       .q_len = 140,
       .k_len = 150,
       .q_heads = 1,
       .kv_heads = 1,
       .head_dim = 128,
       .causal = false,
       .lengths = {150, 0, 65}}};
  for (AttentionCase c : cases) {
    check_all(c, false);
    c.has_sinks = true;
    check_all(c, false);
  }
}

// As a text that grows by a token asks: groups of heads of any size, keys of one chunk and of several, some unseen.
TEST(Attention, OneQuery) {
  for (const auto& [q_heads, kv_heads, dim] :
       {std::array<std::int64_t, 3>{2, 2, 8}, {6, 3, 64}, {3, 1, 72}, {5, 1, 16}, {1, 1, 256}})
    check_all(
        {.batch = 1, .q_len = 1, .k_len = 21, .q_heads = q_heads, .kv_heads = kv_heads, .head_dim = dim});
  for (const std::int64_t keys : {256, 257})
    check_all({.batch = 1, .q_len = 1, .k_len = keys, .q_heads = 1, .kv_heads = 1, .head_dim = 8});
  AttentionCase c{.batch = 3, .q_len = 1, .k_len = 530, .q_heads = 2, .kv_heads = 1, .head_dim = 8};
  c.lengths = {530, 256, 0};
  check_all(c);
  c.window = 300;
  c.has_sinks = true;
  check_all(c);
}

TEST(Attention, OneQueryOfWholePacksHasKernelsOfItsOwn) {
  const Device sim = Device::open("sim");
  const auto runs = [&](const std::string& kernel, std::int64_t queries, std::int64_t dim) {
    const Buffer q = upload(sim, testing::random_tensor(DType::bf16, {1, queries, 6, dim}, 1));
    const Buffer k = upload(sim, testing::random_tensor(DType::bf16, {1, 9, 2, dim}, 2));
    const Buffer y = sim.alloc(DType::bf16, q.shape()), lse = sim.alloc(DType::f32, {1, 6, queries});
    return testing::launches(sim, kernel, [&](CommandEncoder& encoder) {
      attention_forward(encoder, q, k, k, {.scale = 0.3f}, y, lse);
    });
  };
  EXPECT_TRUE(runs("attention_query_bf16_4", 1, 16));
  EXPECT_TRUE(runs("attention_query_sum_bf16", 1, 16));
  EXPECT_FALSE(runs("attention_query_", 2, 16));
  EXPECT_FALSE(runs("attention_query_", 1, 10));
}

TEST(Attention, SlidingWindow) {
  for (const std::int64_t window : {1, 2, 5, 100})
    check_all(
        {.batch = 1, .q_len = 7, .k_len = 9, .q_heads = 2, .kv_heads = 1, .head_dim = 8, .window = window});
}

TEST(Attention, SinksOverSeveralBlocks) {
  check_all({.batch = 1,
             .q_len = 70,
             .k_len = 75,
             .q_heads = 3,
             .kv_heads = 1,
             .head_dim = 8,
             .window = 20,
             .has_sinks = true});
  check_all({.batch = 2,
             .q_len = 3,
             .k_len = 130,
             .q_heads = 4,
             .kv_heads = 2,
             .head_dim = 80,
             .causal = false,
             .has_sinks = true});
}

// Far above the scores a sink takes everything; of -inf it takes nothing, also where no key is seen.
TEST(Attention, SinksAtTheEnds) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const auto make = [&](std::uint64_t seed) {
      return tape.constant(upload(device, testing::random_tensor(DType::f32, {1, 2, 2, 8}, seed)));
    };
    const Buffer no_keys = Buffer::from(device, {1}, std::vector<std::int32_t>{0});
    const Var q = make(1), k = make(2), v = make(3);
    const Var sinks = tape.parameter(Buffer::from(device, {2}, std::vector<float>{1e4f, -HUGE_VALF}));
    const Var y = attention(q, k, v, {}, sinks), plain = attention(q, k, v, {});
    const Var empty = attention(q, k, v, {.lengths = no_keys}, sinks);
    tape.backward(y, q.value());
    tape.backward(empty, q.value());
    tape.encoder().commit_and_wait();
    const std::vector<float> found = y.value().to_vector<float>(), bare = plain.value().to_vector<float>();
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], i / 8 % 2 == 0 ? 0.0f : bare[i]) << i;
    EXPECT_EQ(empty.value().to_vector<float>(), std::vector<float>(32, 0.0f));
    EXPECT_EQ(sinks.grad().to_vector<float>(), std::vector<float>(2, 0.0f));
  }
}

// Positions of a cache that are not there yet, NaN here, are not read.
TEST(Attention, FirstPositionsOfACache) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const auto& [queries, keys, dim] :
           {std::array<std::int64_t, 3>{1, 37, 64}, {5, 140, 64}, {33, 33, 24}}) {
        const auto input = [&](std::int64_t length, std::int64_t heads, std::uint64_t seed) {
          return testing::random_tensor(dtype, {2, length, heads, dim}, seed);
        };
        const auto cached = [&](const testing::HostTensor& t) {
          testing::HostTensor all{dtype, {2, keys + 9, 1, dim}, {}};
          for (std::int64_t b = 0; b < 2; ++b) {
            const auto from = t.values.begin() + b * keys * dim;
            all.values.insert(all.values.end(), from, from + keys * dim);
            all.values.insert(all.values.end(), static_cast<std::size_t>(9 * dim), std::nan(""));
          }
          return upload(device, all);
        };
        const testing::HostTensor k = input(keys, 1, 2), v = input(keys, 1, 3);
        const Buffer q = upload(device, input(queries, 2, 1));
        const auto attend = [&](const Buffer& key, const Buffer& value, std::int64_t count) {
          const Buffer y = device.alloc(dtype, q.shape()), lse = device.alloc(DType::f32, {2, 2, queries});
          CommandEncoder encoder(device);
          attention_forward(encoder, q, key, value, {.scale = 0.5f, .sliding_window = 30, .key_count = count},
                            y, lse);
          encoder.commit_and_wait();
          return testing::download(y).values;
        };
        EXPECT_EQ(attend(cached(k), cached(v), keys), attend(upload(device, k), upload(device, v), 0))
            << device.name() << " " << dtype << " " << queries << "/" << keys;
      }
    }
  }
}

TEST(Attention, A2_RowsThatSeeNothingAreZero) {
  AttentionCase c{
      .batch = 4, .q_len = 6, .k_len = 6, .q_heads = 2, .kv_heads = 1, .head_dim = 8, .window = 2};
  c.lengths = {6, 3, 0, 1};  // with window 2 the last queries of a short sequence see nothing
  check_all(c);
  c.has_sinks = true;
  check_all(c);
  c.causal = false;
  c.window = 0;
  check_all(c);
  c.has_sinks = false;
  check_all(c);
}

TEST(Attention, E1_RowsOfABatchAtOnePositionAreEqual) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const auto twice = [&](const Shape& shape, std::uint64_t seed) {
      testing::HostTensor t = testing::random_tensor(DType::f32, shape, seed);
      std::copy_n(t.values.begin(), t.values.size() / 2,
                  t.values.begin() + static_cast<std::ptrdiff_t>(t.values.size() / 2));
      return tape.constant(upload(device, t));
    };
    const Var y =
        attention(twice({2, 1, 4, 8}, 1), twice({2, 6, 2, 8}, 2), twice({2, 6, 2, 8}, 3), {.scale = 0.3f});
    tape.encoder().commit_and_wait();
    const std::vector<float> values = y.value().to_vector<float>();
    for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(values[i], values[32 + i]);
  }
}

TEST(Attention, A4_NanReachesItsRow) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    testing::HostTensor q = testing::random_tensor(DType::f32, {1, 3, 1, 8}, 1);
    q.values[8 + 2] = NAN;  // query 1
    const Var k = tape.constant(upload(device, testing::random_tensor(DType::f32, {1, 3, 1, 8}, 2)));
    const Var y = attention(tape.constant(upload(device, q)), k, k, {.scale = 1.0f});
    tape.encoder().commit_and_wait();
    const std::vector<float> values = y.value().to_vector<float>();
    for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(std::isnan(values[i]), i / 8 == 1) << i;
  }
}

TEST(Attention, LargeScoresStayFinite) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var q = tape.parameter(upload(device, testing::random_tensor(DType::f32, {1, 9, 1, 8}, 1, 1e4)));
    const Var y = attention(q, q, q, {.scale = 1.0f});
    tape.backward(y, y.value());
    for (const Buffer& b : {y.value(), q.grad()}) {
      for (const float v : b.to_vector<float>()) EXPECT_TRUE(std::isfinite(v));
    }
  }
}

// Scores past 65504 and sums of values past it stay in f32.
TEST(Attention, LargeValuesInF16) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    testing::HostTensor values{DType::f16, {1, 9, 1, 8}, Doubles(72, 6e4)};
    const Var q = tape.constant(upload(device, testing::random_tensor(DType::f16, {1, 9, 1, 8}, 1, 1e3)));
    const Var v = tape.parameter(upload(device, values));
    const Var y = attention(q, q, v, {.scale = 1.0f});
    const Var mean = attention(tape.constant(device.alloc(DType::f16, {1, 9, 1, 8})), q, v, {.scale = 1.0f});
    tape.backward(y, device.alloc(DType::f16, {1, 9, 1, 8}));
    tape.encoder().commit_and_wait();
    testing::expect_close("y", y.value(), values.values, {1.0, 0.0});
    testing::expect_close("mean", mean.value(), values.values, {1.0, 0.0});
    testing::expect_close("dv", v.grad(), Doubles(72, 0.0), {0.0, 0.0});
  }
}

TEST(Attention, BadLengthIsReportedAndCountsAsZero) {
  for (const Device& device : testing::test_devices()) {
    CommandEncoder encoder(device);
    const Buffer q = upload(device, testing::random_tensor(DType::f32, {2, 3, 1, 8}, 1));
    const Buffer y = device.alloc(DType::f32, q.shape()), lse = device.alloc(DType::f32, {2, 1, 3});
    const AttentionOptions options{.lengths = Buffer::from(device, {2}, std::vector<std::int32_t>{3, -1})};
    attention_forward(encoder, q, q, q, options, y, lse);
    MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range, "-1");
    const std::vector<float> values = y.to_vector<float>();
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i] == 0.0f, i >= 24);
  }
}

TEST(Attention, OnlyWantedGradients) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const auto make = [&](std::uint64_t seed) {
      return upload(device, testing::random_tensor(DType::f32, {1, 4, 1, 8}, seed));
    };
    const Var q = tape.parameter(make(1)), k = tape.parameter(make(2)), v = tape.parameter(make(3));
    const Var all = attention(q, k, v, {});
    tape.backward(all, make(4));
    const Var only = tape.parameter(make(3));
    const Var y = attention(tape.constant(make(1)), tape.constant(make(2)), only, {});
    tape.backward(y, make(4));
    EXPECT_EQ(only.grad().to_vector<float>(), v.grad().to_vector<float>());
  }
}

TEST(Attention, OneVariableThreeTimes) {
  for (const Device& device : testing::test_devices()) {
    const testing::HostTensor x = testing::random_tensor(DType::f32, {1, 5, 1, 8}, 1);
    const Buffer dy = upload(device, testing::random_tensor(DType::f32, {1, 5, 1, 8}, 2));
    Tape tape(device);
    const Var one = tape.parameter(upload(device, x));
    tape.backward(attention(one, one, one, {}), dy);
    const Var q = tape.parameter(upload(device, x)), k = tape.parameter(upload(device, x)),
              v = tape.parameter(upload(device, x));
    tape.backward(attention(q, k, v, {}), dy);
    Doubles sum = testing::download(q.grad()).values;
    for (const Buffer& part : {k.grad(), v.grad()}) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += testing::download(part).values[i];
    }
    testing::expect_close("gradient", one.grad(), sum, {1.0, 0x1p-20});
  }
}

TEST(Attention, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const auto make = [&](const Shape& shape) { return device.alloc(DType::f32, shape); };
  const Buffer q = make({2, 4, 6, 8}), k = make({2, 4, 2, 8}), y = make({2, 4, 6, 8}), lse = make({2, 6, 4});
  const auto code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(attention_forward(encoder, Buffer(), k, k, {}, y, lse), code, "attention: q is null");
  MIXTAPE_EXPECT_ERROR(attention_forward(encoder, make({2, 5, 6, 8}), k, k, {}, y, lse), code,
                       "q has 5 positions");
  MIXTAPE_EXPECT_ERROR(attention_forward(encoder, q, make({2, 4, 4, 8}), make({2, 4, 4, 8}), {}, y, lse),
                       code, "multiple of the 4");
  MIXTAPE_EXPECT_ERROR(attention_forward(encoder, q, k, make({2, 4, 2, 10}), {}, y, lse), code,
                       "v is f32[2,4,2,10]");
  const Buffer narrow = make({1, 4, 1, 6});
  MIXTAPE_EXPECT_ERROR(attention_forward(encoder, narrow, narrow, narrow, {}, y, lse), code, "head_dim is 6");
  MIXTAPE_EXPECT_ERROR(attention_forward(encoder, q, k, k, {.causal = false, .sliding_window = 3}, y, lse),
                       code, "sliding_window is 3");
  MIXTAPE_EXPECT_ERROR(attention_forward(encoder, q, k, k, {.sinks = make({2})}, y, lse), code,
                       "sinks is f32[2], expected f32[6]");
  MIXTAPE_EXPECT_ERROR(
      attention_backward(encoder, q, k, k, {}, y, lse, y, {}, {}, {}, {make({6}), Accumulate::no}), code,
      "without sinks");
  MIXTAPE_EXPECT_ERROR(attention_forward(encoder, q, k, k, {}, y, make({2, 4, 6})), code, "lse is");
  MIXTAPE_EXPECT_ERROR(attention_forward(encoder, q, k, k, {}, q, lse), code, "shares memory");
  MIXTAPE_EXPECT_ERROR(attention_backward(encoder, q, k, k, {}, y, lse, y, {k, Accumulate::no}, {}, {}), code,
                       "attention_backward: dq is");
}

}  // namespace
}  // namespace mixtape
