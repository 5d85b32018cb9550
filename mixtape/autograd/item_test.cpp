#include "mixtape/autograd/item.h"

#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

TEST(Item, IsTheOnlyElement) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    for (const DType dtype : testing::kValueDtypes) {
      const Buffer value = device.alloc_uninitialized(dtype, {1, 1});
      tape.encoder().fill(value, -1.5f);  // not waited for
      EXPECT_EQ(item(tape.parameter(value)), -1.5);
    }
    EXPECT_EQ(item(tape.constant(Buffer::from<std::uint32_t>(device, {1}, {4000000000u}))), 4e9);
    EXPECT_EQ(item(tape.constant(Buffer::from<std::int32_t>(device, {}, {-7}))), -7.0);
    EXPECT_EQ(item(tape.constant(Buffer::from<std::uint8_t>(device, {1}, {200}))), 200.0);
    EXPECT_EQ(item(tape.constant(Buffer::from<std::uint16_t>(device, {1}, {60000}))), 60000.0);
    MIXTAPE_EXPECT_ERROR(item(tape.constant(device.alloc(DType::f32, {2}))), ErrorCode::invalid_argument,
                         "item: x is f32[2], expected one element");
    MIXTAPE_EXPECT_ERROR(item(Var()), ErrorCode::invalid_argument, "item: x is null");
  }
}

}  // namespace
}  // namespace mixtape
