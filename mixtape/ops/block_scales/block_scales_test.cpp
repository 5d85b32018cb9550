#include "mixtape/ops/block_scales/block_scales.h"

#include <gmock/gmock.h>

#include <cmath>

#include "mixtape/ops/block_scales/block_scales_check.h"
#include "mixtape/ops/block_scales/block_scales_oracle.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::Doubles;
using testing::HostTensor;

constexpr auto kInvalid = ErrorCode::invalid_argument;

TEST(BlockScales, MatchesOracle) {
  for (const Device& device : testing::test_devices())
    check_ops(device, block_scales_checks(device, DType::f32));
}

TEST(BlockScales, ManyBlocks) {
  for (const Device& device : testing::test_devices()) {
    testing::OpCheck check = block_scales_check({130, 9}, {8, {0, 63}});
    check.prove_oracle = false;
    check_op(device, check);
  }
}

std::vector<float> forward(const Device& device, const std::vector<float>& d, const std::vector<float>& u,
                           const BlockScaleRule& rule) {
  CommandEncoder encoder(device);
  const auto size = [](const std::vector<float>& v) { return static_cast<std::int64_t>(v.size()); };
  const Buffer y = device.alloc_uninitialized(DType::f32, {size(d) * rule.groups});
  block_scales_forward(encoder, Buffer::from(device, {size(d)}, d),
                       u.empty() ? Buffer() : Buffer::from(device, {size(u)}, u), y, rule);
  encoder.commit_and_wait();
  return y.to_vector<float>();
}

TEST(BlockScales, RoundsBothLevels) {
  const float inf = HUGE_VALF, d = 0x1.002p-3f;  // halfway between two f16: to the even one
  for (const Device& device : testing::test_devices()) {
    const std::vector<float> y =
        forward(device, {d, -2.0f}, {0.5f, 1.5f, 63.4f, 64.6f, -1.0f, inf, -inf, NAN}, {4, {0, 63}});
    const float o = 0x1p-3f;
    EXPECT_EQ(y, (std::vector<float>{0.0f, 2 * o, 63 * o, 63 * o, 0.0f, -126.0f, 0.0f, 0.0f}))
        << device.name();
    EXPECT_EQ(forward(device, {70000.0f, 1e-9f}, {}, {1, {1, 1}}), (std::vector<float>{inf, 0.0f}));
    EXPECT_EQ(forward(device, {0.25f}, {-32.0f}, {1, {-32, 31}, -4.0f}), (std::vector<float>{32.0f}));
  }
}

// No gradient where u was clamped, halves of a step beyond the ends count as inside.
TEST(BlockScales, ClampedNumbersHaveNoGradient) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const std::vector<float> u = {-0.6f, -0.5f, 3.0f, 63.5f, 63.6f, NAN, HUGE_VALF, 0.0f};
    const Var d = tape.parameter(Buffer::from(device, {1}, std::vector<float>{0.5f}));
    const Var sub = tape.parameter(Buffer::from(device, {8}, u));
    tape.backward(block_scales(d, sub, {8, {0, 63}, 2.0f}),
                  Buffer::from(device, {8}, std::vector<float>(8, 1.0f)));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(sub.grad().to_vector<float>(),
              (std::vector<float>{0.0f, 1.0f, 1.0f, 1.0f, 0.0f, 0.0f, 0.0f, 1.0f}));
    EXPECT_EQ(d.grad().to_vector<float>(), (std::vector<float>{2.0f * (3.0f + 3.0f * 63.0f)}));
  }
}

TEST(BlockScales, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer d = device.alloc(DType::f32, {3, 2}), u = device.alloc(DType::f32, {3, 16});
  const Buffer y = device.alloc(DType::f32, {3, 16});
  const BlockScaleRule rule{8, {0, 63}};
  MIXTAPE_EXPECT_ERROR(block_scales_forward(encoder, d, u, y, {0, {0, 63}}), kInvalid, "groups is 0");
  MIXTAPE_EXPECT_ERROR(block_scales_forward(encoder, d, u, y, {8, {5, 3}}), kInvalid, "the grid is 5 to 3");
  MIXTAPE_EXPECT_ERROR(block_scales_forward(encoder, d, Buffer(), y, rule), kInvalid, "u is null");
  MIXTAPE_EXPECT_ERROR(block_scales_forward(encoder, d, u, y, {8, {1, 1}}), kInvalid,
                       "u is f32[3,16], expected none");
  MIXTAPE_EXPECT_ERROR(block_scales_forward(encoder, d, u, u, rule), kInvalid, "y shares memory with u");
  MIXTAPE_EXPECT_ERROR(block_scales_forward(encoder, d, u, device.alloc(DType::f32, {3, 8}), rule), kInvalid,
                       "y is f32[3,8], expected f32[3,16]");
  MIXTAPE_EXPECT_ERROR(block_scales_backward(encoder, y, d, u, {u, Accumulate::no}, {}, rule), kInvalid,
                       "dd");
  Tape tape(device);
  MIXTAPE_EXPECT_ERROR(block_scales(tape.constant(device.alloc(DType::bf16, {3, 2})), tape.constant(u), rule),
                       kInvalid, "d is bf16[3,2], expected f32");
}

}  // namespace
}  // namespace mixtape
