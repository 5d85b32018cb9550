#include "mixtape/ops/outer_product/outer_product.h"

#include <cmath>

#include "mixtape/ops/outer_product/outer_product_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

TEST(OuterProduct, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, outer_product_checks(device, dtype));
  }
}

// More rows than a block of db takes, longer rows than a block of threads; many small matrices.
TEST(OuterProduct, LongAndMany) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      check_op(device, outer_product_check(dtype, 2, 300, 24));
      check_op(device, outer_product_check(dtype, 1, 3, 2600));
      check_op(device, outer_product_check(dtype, 1, 129, 521));
      check_op(device, outer_product_check(dtype, 90, 6, 8));
    }
  }
}

TEST(OuterProduct, OneGradientAlone) {
  for (const Device& device : testing::test_devices()) {
    testing::OpCheck check = outer_product_check(DType::f32, 2, 4, 6);
    for (const std::vector<bool>& wanted : {std::vector<bool>{true, false}, {false, true}}) {
      check.differentiable = wanted;
      check_op(device, check);
    }
  }
}

TEST(OuterProduct, LeadingDimensions) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var a = tape.parameter(Buffer::from(device, {2, 1, 2}, std::vector<float>{1, 2, 3, 4}));
    const Var b = tape.parameter(Buffer::from(device, {2, 1, 3}, std::vector<float>{1, 10, 100, 1, 0, -1}));
    const Var y = outer_product(a, b);
    EXPECT_EQ(y.shape(), (Shape{2, 1, 2, 3}));
    tape.backward(y, y.value());
    tape.encoder().commit_and_wait();
    EXPECT_EQ(y.value().to_vector<float>(), (std::vector<float>{1, 10, 100, 2, 20, 200, 3, 0, -3, 4, 0, -4}));
    EXPECT_EQ(a.grad().to_vector<float>(), (std::vector<float>{10101, 20202, 6, 8}));
    EXPECT_EQ(b.grad().to_vector<float>(), (std::vector<float>{5, 50, 500, 25, 0, -25}));
  }
}

// In bf16 a sum of ones sticks at 256.
TEST(OuterProduct, D5_GradientOfManyBf16Rows) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var a = tape.constant(Buffer::from(device, {4096}, std::vector<bf16>(4096, bf16(1.0f))));
    const Var b = tape.parameter(Buffer::from(device, {2}, std::vector<bf16>(2, bf16(1.0f))));
    const Var y = outer_product(a, b);
    tape.backward(y, y.value());
    tape.encoder().commit_and_wait();
    for (const bf16 d : b.grad().to_vector<bf16>()) EXPECT_EQ(static_cast<float>(d), 4096.0f);
  }
}

TEST(OuterProduct, NanGoesThrough) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var a = tape.parameter(Buffer::from(device, {2}, std::vector<float>{NAN, 1}));
    const Var b = tape.parameter(Buffer::from(device, {2}, std::vector<float>{0, 1}));
    const Var y = outer_product(a, b);
    tape.backward(y, Buffer::from(device, {2, 2}, std::vector<float>{0, 0, 0, 0}));
    tape.encoder().commit_and_wait();
    const std::vector<float> found = y.value().to_vector<float>();
    EXPECT_TRUE(std::isnan(found[0]) && std::isnan(found[1]));
    EXPECT_EQ(found[3], 1.0f);
    for (const float d : b.grad().to_vector<float>()) EXPECT_TRUE(std::isnan(d));
    for (const float d : a.grad().to_vector<float>()) EXPECT_EQ(d, 0.0f);
  }
}

TEST(OuterProduct, EmptyBatch) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var a = tape.parameter(device.alloc(DType::f32, {0, 3})),
              b = tape.parameter(device.alloc(DType::f32, {0, 2}));
    const Var y = outer_product(a, b);
    EXPECT_EQ(y.shape(), (Shape{0, 3, 2}));
    tape.backward(y, y.value());
    EXPECT_EQ(a.grad().shape(), (Shape{0, 3}));
    EXPECT_EQ(b.grad().shape(), (Shape{0, 2}));
  }
}

TEST(OuterProduct, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const auto make = [&](const Shape& shape) { return device.alloc(DType::f32, shape); };
  const Buffer a = make({2, 3}), b = make({2, 4}), y = make({2, 3, 4});
  const auto code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(
      outer_product_forward(encoder, a, make({3, 4}), y), code,
      "outer_product: b is f32[3,4], expected the dtype and leading dimensions of a f32[2,3]");
  MIXTAPE_EXPECT_ERROR(outer_product_forward(encoder, a, make({4}), y), code, "b is f32[4]");
  MIXTAPE_EXPECT_ERROR(outer_product_forward(encoder, a, device.alloc(DType::bf16, {2, 4}), y), code,
                       "b is bf16[2,4]");
  MIXTAPE_EXPECT_ERROR(outer_product_forward(encoder, a, b, make({2, 4, 3})), code,
                       "y is f32[2,4,3], expected f32[2,3,4]");
  MIXTAPE_EXPECT_ERROR(outer_product_forward(encoder, make({2, 0}), b, make({2, 0, 4})), code,
                       "no dimension of 0");
  MIXTAPE_EXPECT_ERROR(outer_product_backward_a(encoder, b, b, a), code, "outer_product_backward_a: b is");
  MIXTAPE_EXPECT_ERROR(outer_product_backward_a(encoder, b, y, b), code, "da is f32[2,4], expected f32[2,3]");
  MIXTAPE_EXPECT_ERROR(outer_product_backward_b(encoder, a, y, a), code, "db is f32[2,3], expected f32[2,4]");
  MIXTAPE_EXPECT_ERROR(outer_product_backward_b(encoder, a, make({4}), b), code, "of rank 2 or more");
}

}  // namespace
}  // namespace mixtape
