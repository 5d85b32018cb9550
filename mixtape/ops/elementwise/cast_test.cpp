#include "mixtape/ops/elementwise/cast.h"

#include <bit>
#include <cmath>

#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::Doubles;

TEST(Cast, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const auto& [from, to] : {std::pair{DType::f32, DType::bf16}, {DType::bf16, DType::f32}}) {
      testing::OpCheck check;
      check.name = str("cast ", from, " ", to);
      check.inputs = {testing::random_tensor(from, {3, 37}, 4)};
      check.op = [to = to](const std::vector<Var>& v) { return cast(v[0], to); };
      check.forward = [](const auto& v) { return v[0]; };
      check.complex_forward = [](const auto& v) { return v[0]; };
      check.backward = [](const auto&, const Doubles& dy) -> std::vector<Doubles> { return {dy}; };
      check.forward_bound = {to == DType::bf16 ? 0.5 : 0.0, 0.0};
      check.backward_bound = {from == DType::bf16 ? 0.5 : 0.0, 0.0};
      check_op(device, check);
    }
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

TEST(Cast, EveryNanIsQuietAfterwards) {
  for (const Device& device : testing::test_devices()) {
    std::vector<float> x;
    for (const std::uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0x7fffffffu, 0x7f8000ffu})
      x.push_back(std::bit_cast<float>(bits));
    CommandEncoder encoder(device);
    const Buffer y = device.alloc(DType::bf16, {5});
    cast_forward(encoder, Buffer::from(device, {5}, x), y);
    encoder.commit_and_wait();
    for (const bf16 v : y.to_vector<bf16>()) {
      EXPECT_TRUE(std::isnan(static_cast<float>(v)));
      EXPECT_NE(v.bits & 0x40u, 0u);
    }
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
  MIXTAPE_EXPECT_ERROR(cast_forward(encoder, x, device.alloc(DType::f16, {4})), ErrorCode::not_supported,
                       "cast_f32_f16");
  Tape tape(device);
  MIXTAPE_EXPECT_ERROR(cast(tape.constant(x), DType::u32), code, "wanted dtype is u32");
}

}  // namespace
}  // namespace mixtape
