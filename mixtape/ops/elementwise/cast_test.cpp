#include "mixtape/ops/elementwise/cast.h"

#include <bit>
#include <cmath>

#include "mixtape/ops/elementwise/cast_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

TEST(Cast, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, cast_checks(device, dtype));
  }
}

TEST(Cast, EveryBf16AndBack) {
  for (const Device& device : testing::test_devices()) {
    std::vector<bf16> all(65536);
    for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
    CommandEncoder encoder(device);
    const Buffer narrow = Buffer::from(device, {65536}, all);
    const Buffer wide = device.alloc(DType::f32, {65536});
    const Buffer back = device.alloc(DType::bf16, {65536});
    cast_forward(encoder, narrow, wide);
    cast_forward(encoder, wide, back);
    encoder.commit_and_wait();
    const auto f = wide.to_vector<float>();
    const auto b = back.to_vector<bf16>();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool is_nan = (i & 0x7fffu) > 0x7f80u;
      const auto wanted = static_cast<std::uint16_t>(is_nan ? i | 0x40u : i);
      ASSERT_EQ(b[i].bits, wanted);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(f[i]), std::uint32_t{wanted} << 16);
    }
  }
}

TEST(Cast, EveryF16AndBack) {
  for (const Device& device : testing::test_devices()) {
    std::vector<f16> all(65536);
    for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
    CommandEncoder encoder(device);
    const Buffer narrow = Buffer::from(device, {65536}, all);
    const Buffer wide = device.alloc(DType::f32, {65536});
    const Buffer back = device.alloc(DType::f16, {65536});
    cast_forward(encoder, narrow, wide);
    cast_forward(encoder, wide, back);
    encoder.commit_and_wait();
    const auto f = wide.to_vector<float>();
    const auto b = back.to_vector<f16>();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool is_nan = (i & 0x7fffu) > 0x7c00u;
      ASSERT_EQ(b[i].bits, is_nan ? i | 0x200u : i) << device.name();
      const std::uint32_t quiet = is_nan ? 0x400000u : 0u;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(f[i]),
                std::bit_cast<std::uint32_t>(static_cast<float>(all[i])) | quiet)
          << device.name() << " " << i;
    }
  }
}

// f16 ends at 65504 and is spaced 2^-24 below 2^-14; bf16 has the range of f32.
TEST(Cast, F16OverflowsAndKeepsSubnormals) {
  for (const Device& device : testing::test_devices()) {
    const std::vector<float> x = {65504.0f, 65519.0f, 65520.0f, -65520.0f, 3e38f,
                                  0x1p-24f, 0x1p-25f, 3e-8f,    -0x3p-24f, -0.0f};
    const std::vector<float> wanted = {65504.0f, 65504.0f, HUGE_VALF, -HUGE_VALF, HUGE_VALF,
                                       0x1p-24f, 0.0f,     0x1p-24f,  -0x3p-24f,  -0.0f};
    CommandEncoder encoder(device);
    const Buffer y = device.alloc(DType::f16, {10}), through_bf16 = device.alloc(DType::bf16, {10});
    const Buffer z = device.alloc(DType::f16, {10});
    cast_forward(encoder, Buffer::from(device, {10}, x), y);
    cast_forward(encoder, Buffer::from(device, {10}, x), through_bf16);
    cast_forward(encoder, through_bf16, z);
    encoder.commit_and_wait();
    const auto found = y.to_vector<f16>(), indirect = z.to_vector<f16>();
    const auto between = through_bf16.to_vector<bf16>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(found[i].bits, f16(wanted[i]).bits) << device.name() << " " << x[i];
      EXPECT_EQ(indirect[i].bits, f16(static_cast<float>(between[i])).bits) << device.name() << " " << x[i];
    }
  }
}

TEST(Cast, EveryNanIsQuietAfterwards) {
  for (const Device& device : testing::test_devices()) {
    std::vector<float> x;
    for (const std::uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0x7fffffffu, 0x7f8000ffu})
      x.push_back(std::bit_cast<float>(bits));
    CommandEncoder encoder(device);
    const Buffer y = device.alloc(DType::bf16, {5}), h = device.alloc(DType::f16, {5});
    cast_forward(encoder, Buffer::from(device, {5}, x), y);
    cast_forward(encoder, Buffer::from(device, {5}, x), h);
    encoder.commit_and_wait();
    for (const bf16 v : y.to_vector<bf16>()) {
      EXPECT_TRUE(std::isnan(static_cast<float>(v)));
      EXPECT_NE(v.bits & 0x40u, 0u);
    }
    const auto halves = h.to_vector<f16>();
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(halves[i].bits, f16(x[i]).bits);
  }
}

TEST(Cast, OwnDtypeAndEmptyBatch) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(device.alloc(DType::f32, {0, 3}));
    EXPECT_TRUE(cast(x, DType::f32).requires_grad());
    const Var y = cast(x, DType::bf16);
    EXPECT_EQ(y.dtype(), DType::bf16);
    tape.backward(y, device.alloc(DType::bf16, {0, 3}));
    EXPECT_EQ(x.grad().dtype(), DType::f32);
  }
}

TEST(Cast, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer x = device.alloc(DType::f32, {4});
  const auto code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(cast_forward(encoder, x, device.alloc(DType::bf16, {5})), code, "cast: y is bf16[5]");
  MIXTAPE_EXPECT_ERROR(cast_forward(encoder, x, device.alloc(DType::u16, {4})), code, "cast: y is u16[4]");
  MIXTAPE_EXPECT_ERROR(cast_backward(encoder, x, Buffer()), code, "cast_backward: dx is null");
  MIXTAPE_EXPECT_ERROR(cast_forward(encoder, x, device.alloc(DType::i32, {4})), code, "cast: y is i32[4]");
  Tape tape(device);
  MIXTAPE_EXPECT_ERROR(cast(tape.constant(x), DType::u32), code, "wanted dtype is u32");
}

}  // namespace
}  // namespace mixtape
