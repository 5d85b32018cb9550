#include "mixtape/ops/rope/rope.h"

#include <cmath>

#include "mixtape/ops/rope/rope_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::HostTensor;

constexpr RopeOptions kHalfSplit{RopePairs::half_split, 1.0f};
constexpr RopeOptions kInterleaved{RopePairs::interleaved, 1.25f};

TEST(Rope, E3_MatchesOracleFullAndPartial) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, rope_checks(device, dtype));
  }
}

// An angle rounded to f32 would be off by 0.03 at the fastest pair.
TEST(Rope, LargePositions) {
  for (const Device& device : testing::test_devices()) {
    for (const RopeOptions options : {kHalfSplit, kInterleaved}) {
      check_op(device, rope_check(device, {DType::f32, {1, 40, 1, 16}, 8, options, 1 << 20}));
      check_op(device, rope_check(device, {DType::f32, {1, 40, 1, 16}, 8, options, 0xffffffff}));
    }
  }
}

std::vector<float> turn(const Device& device, const Shape& shape, const std::vector<float>& x,
                        const std::vector<std::uint32_t>& positions, std::int64_t pairs, RopeOptions options,
                        bool back = false) {
  CommandEncoder encoder(device);
  const Buffer p = Buffer::from(device, {shape[0], shape[1]}, positions);
  const Buffer table = upload(device, rope_frequencies(pairs));
  const Buffer b = Buffer::from(device, shape, x);
  if (back) rope_backward(encoder, p, table, options, b, b);
  if (!back) rope_forward(encoder, b, p, table, options, b);
  encoder.commit_and_wait();
  return b.to_vector<float>();
}

// (1, 0) turned is cosine and sine: within the contract's bound over every quadrant, near 0 and far out.
TEST(Rope, AnglesAreAsGoodAsPromised) {
  const std::int64_t length = 300, pairs = 33;
  std::vector<float> x;
  for (std::int64_t i = 0; i < length * 2 * pairs; ++i) x.push_back(i % (2 * pairs) < pairs ? 1.0f : 0.0f);
  std::vector<std::uint32_t> positions;
  for (std::uint32_t s = 0; s < length; ++s) positions.push_back(s < 150 ? s : 900007u * (s - 149));
  const HostTensor table = rope_frequencies(pairs);
  for (const Device& device : testing::test_devices()) {
    const std::vector<float> y = turn(device, {1, length, 1, 2 * pairs}, x, positions, pairs, kHalfSplit);
    double worst = 0.0;
    for (std::size_t s = 0; s < positions.size(); ++s) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(pairs); ++i) {
        const double angle = positions[s] * table.values[i];
        const std::size_t at = s * 2 * static_cast<std::size_t>(pairs) + i;
        worst = std::max(worst, std::abs(y[at] - std::cos(angle)));
        worst = std::max(worst, std::abs(y[at + static_cast<std::size_t>(pairs)] - std::sin(angle)));
      }
    }
    EXPECT_LE(worst, 3.0 * 0x1p-24) << device.name();
  }
}

TEST(Rope, E1_EqualSequencesOfOneToken) {
  for (const Device& device : testing::test_devices()) {
    for (const RopeOptions options : {kHalfSplit, kInterleaved}) {
      std::vector<float> x(2 * 3 * 8);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 24) + 1.0f;
      const std::vector<float> y = turn(device, {2, 1, 3, 8}, x, {5, 5}, 4, options);
      EXPECT_TRUE(std::equal(y.begin(), y.begin() + 24, y.begin() + 24));
      EXPECT_NEAR(y[1],
                  options.factor * (options.pairs == RopePairs::half_split
                                        ? 2.0 * std::cos(0.5) - 6.0 * std::sin(0.5)
                                        : 2.0 * std::cos(5.0) + 1.0 * std::sin(5.0)),
                  1e-5);
      const std::vector<float> folded = turn(device, {6, 1, 1, 8}, x, {5, 5, 5, 5, 5, 5}, 4, options);
      EXPECT_EQ(y, folded);
    }
  }
}

TEST(Rope, E3_BackwardUndoesForwardAndKeepsTheRest) {
  for (const Device& device : testing::test_devices()) {
    for (const RopePairs pairs : {RopePairs::half_split, RopePairs::interleaved}) {
      const HostTensor t = testing::random_tensor(DType::f32, {1, 3, 2, 12}, 9);
      const std::vector<float> x(t.values.begin(), t.values.end());
      const std::vector<float> y = turn(device, t.shape, x, {0, 7, 1000}, 4, {pairs});
      const std::vector<float> back = turn(device, t.shape, y, {0, 7, 1000}, 4, {pairs}, true);
      for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_NEAR(back[i], x[i], 6.0 * 0x1p-24 * 8.0) << i;
        if (i % 12 >= 8 || i < 24) {  // beyond d, or at position 0
          EXPECT_EQ(y[i], x[i]) << i;
        } else {
          EXPECT_NE(y[i], x[i]) << i;
        }
      }
    }
  }
}

TEST(Rope, EmptyBatch) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(device.alloc(DType::f32, {0, 4, 2, 8}));
    const Var y = rope(x, device.alloc(DType::u32, {4}), upload(device, rope_frequencies(4)));
    tape.backward(y, y.value());
    EXPECT_EQ(x.grad().shape(), x.shape());
  }
}

TEST(Rope, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer x = device.alloc(DType::f32, {2, 3, 4, 8});
  const Buffer positions = device.alloc(DType::u32, {2, 3});
  const Buffer table = device.alloc(DType::f32, {4});
  const auto code = ErrorCode::invalid_argument;
  const auto refuse = [&](const Buffer& a, const Buffer& p, const Buffer& t, const char* text) {
    MIXTAPE_EXPECT_ERROR(rope_forward(encoder, a, p, t, {}, a), code, text);
  };
  refuse(device.alloc(DType::f32, {6, 4, 8}), positions, table, "rope: x is f32[6,4,8], expected [batch");
  refuse(x, device.alloc(DType::i32, {2, 3}), table, "positions is i32[2,3], expected u32 [2,3] or [3]");
  refuse(x, device.alloc(DType::u32, {3, 2}), table, "positions is u32[3,2]");
  refuse(x, positions, device.alloc(DType::f32, {5}), "inv_freq is f32[5], expected f32 [1] to [4]");
  refuse(x, positions, device.alloc(DType::f32, {0}), "inv_freq is f32[0]");
  MIXTAPE_EXPECT_ERROR(rope_forward(encoder, x, positions, table, {RopePairs::half_split, NAN}, x), code,
                       "factor is nan");
  MIXTAPE_EXPECT_ERROR(rope_backward(encoder, positions, table, {}, x, table), code, "dx is f32[4]");
}

}  // namespace
}  // namespace mixtape
