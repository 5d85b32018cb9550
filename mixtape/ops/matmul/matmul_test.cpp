#include "mixtape/ops/matmul/matmul.h"

#include "mixtape/ops/matmul/matmul_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::Doubles;

TEST(Matmul, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, matmul_checks(device, dtype));
  }
}

TEST(Matmul, LongSumsOverSeveralTiles) {
  for (const Device& device : testing::test_devices())
    check_op(device,
             matmul_check(DType::bf16, DType::f32, {1, 530, 300, 12, false, true}, {530, 12}, {300, 12}));
}

// Sums in f32: they may pass 65504 and come back; results are rounded once, from 65520 on to infinity.
TEST(Matmul, RangeOfF16) {
  const Doubles a = {60000.0, 60000.0, -60000.0,  // comes back
                     65504.0, 15.0,    0.0,       // rounds down
                     65504.0, 16.0,    0.0,       // ties to infinity
                     0x1p-24, 0x1p-24, 0x1p-24,   // subnormal
                     0x1p-12, 0.0,     0.0};
  const Doubles wanted = {60000.0, 65504.0, HUGE_VAL, 0x1.8p-23, 0x1p-12};
  for (const Device& device : testing::test_devices()) {
    const Buffer y = device.alloc(DType::f16, {5, 2});
    CommandEncoder encoder(device);
    matmul_forward(encoder, testing::upload(device, {DType::f16, {5, 3}, a}),
                   testing::upload(device, {DType::f16, {3, 2}, {1.0, 0x1p-13, 1.0, 0.0, 1.0, 0.0}}), y);
    encoder.commit_and_wait();
    const Doubles found = testing::download(y).values;
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(found[2 * i], wanted[i]) << i;
    EXPECT_EQ(found[1], 7.32421875);  // 60000 * 2^-13 = 7.324...
    EXPECT_EQ(found[9], 0.0);         // 2^-25 is halfway to the smallest
  }
}

TEST(Matmul, SumOverNothingIsZero) {
  for (const Device& device : testing::test_devices()) {
    const testing::Poison poison(device);
    Tape tape(device);
    const Var a = tape.parameter(device.alloc(DType::bf16, {2, 0}));
    const Var y = matmul(a, tape.constant(device.alloc(DType::bf16, {0, 3})));
    tape.encoder().commit_and_wait();
    testing::expect_close("y", y.value(), Doubles(6, 0.0), {0.0, 0.0});
  }
}

TEST(Matmul, OnlyWantedGradients) {
  const Device device = Device::cpu();
  Tape tape(device);
  const Var a = tape.constant(device.alloc(DType::f32, {2, 4}));
  const Var b = tape.parameter(device.alloc(DType::f32, {4, 3}));
  const Var y = matmul(a, b);
  tape.backward(y, y.value());
  EXPECT_FALSE(a.grad());
  EXPECT_TRUE(b.grad());
}

TEST(Matmul, WhatIsNotReadMayBeLeftOut) {
  const Device device = Device::cpu();
  const auto make = [&](const Shape& shape) {
    return upload(device, testing::random_tensor(DType::f32, shape, 1));
  };
  const Buffer a = make({4, 8}), b = make({8, 3}), dy = make({4, 3});
  const Buffer da = make({4, 8}), db = make({8, 3}), da_alone = make({4, 8}), db_alone = make({8, 3});
  CommandEncoder encoder(device);
  matmul_backward(encoder, a, b, dy, {da, Accumulate::no}, {db, Accumulate::no});
  matmul_backward(encoder, {}, b, dy, {da_alone, Accumulate::no}, {});
  matmul_backward(encoder, a, {}, dy, {}, {db_alone, Accumulate::no});
  encoder.commit_and_wait();
  EXPECT_EQ(testing::download_bytes(da), testing::download_bytes(da_alone));
  EXPECT_EQ(testing::download_bytes(db), testing::download_bytes(db_alone));
}

TEST(Matmul, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const auto make = [&](DType dtype, const Shape& shape) { return device.alloc(dtype, shape); };
  const Buffer a = make(DType::f32, {4, 8}), b = make(DType::f32, {8, 3}), y = make(DType::f32, {4, 3});
  const auto code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(matmul_forward(encoder, Buffer(), b, y), code, "matmul: a is null");
  MIXTAPE_EXPECT_ERROR(matmul_forward(encoder, a, b, y, false, true), code, "got 8 and 3");
  MIXTAPE_EXPECT_ERROR(matmul_forward(encoder, a, b, make(DType::f32, {3, 4})), code,
                       "y is f32[3,4], expected f32[4,3]");
  MIXTAPE_EXPECT_ERROR(matmul_forward(encoder, a, make(DType::bf16, {8, 3}), y), code, "expected f32 like a");
  MIXTAPE_EXPECT_ERROR(matmul_forward(encoder, a, b, make(DType::bf16, {4, 3})), code, "y is bf16[4,3]");
  MIXTAPE_EXPECT_ERROR(matmul_forward(encoder, make(DType::f32, {8}), b, y), code, "rank 2 or more");
  MIXTAPE_EXPECT_ERROR(matmul_forward(encoder, make(DType::f32, {0, 8}), b, y), code, "expected f32[0,3]");
  MIXTAPE_EXPECT_ERROR(matmul_forward(encoder, make(DType::f32, {2, 4, 8}), make(DType::f32, {3, 8, 3}), y),
                       code, "equal leading dimensions");
  MIXTAPE_EXPECT_ERROR(matmul_forward(encoder, make(DType::f32, {2, 8, 4}), b, y, true), code,
                       "not transposed");
  const Buffer square = make(DType::f32, {4, 4});
  MIXTAPE_EXPECT_ERROR(matmul_forward(encoder, square, make(DType::f32, {4, 4}), square), code,
                       "shares memory");
  MIXTAPE_EXPECT_ERROR(matmul_backward(encoder, a, b, make(DType::f32, {5, 3}), {a, Accumulate::no}, {}),
                       code, "matmul_backward: dy is");
  MIXTAPE_EXPECT_ERROR(matmul_backward(encoder, a, {}, y, {make(DType::f32, {4, 8}), Accumulate::no}, {}),
                       code, "b is null, expected both");
  MIXTAPE_EXPECT_ERROR(matmul_forward(encoder, make(DType::f16, {4, 8}), make(DType::bf16, {8, 3}), y), code,
                       "expected f16 like a");
}

}  // namespace
}  // namespace mixtape
