#include "mixtape/ops/grouped_matmul/grouped_matmul.h"

#include "mixtape/ops/grouped_matmul/grouped_matmul_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using oracle::GroupedMatmulCase;
using testing::Doubles;

TEST(GroupedMatmul, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, grouped_matmul_checks(device, dtype));
    check_op(device, grouped_matmul_check(device, DType::bf16, DType::bf16, {20, 12, {600, 1, 30}}));
  }
}

TEST(GroupedMatmul, SeveralTiles) {
  for (const Device& device : testing::test_devices()) {
    check_op(device, grouped_matmul_check(device, DType::f32, DType::f32, {136, 24, {130, 0, 3}}));
    check_op(device, grouped_matmul_check(device, DType::bf16, DType::bf16, {24, 136, {130, 0, 3}}));
  }
}

TEST(GroupedMatmul, ManyExperts) {
  GroupedMatmulCase c{2, 3, std::vector<std::int64_t>(300, 0)};
  c.sizes[255] = 2, c.sizes[256] = 1, c.sizes[299] = 3;
  const testing::HostTensor x = testing::random_tensor(DType::f32, {6, 3}, 1);
  const testing::HostTensor w = testing::random_tensor(DType::f32, {300, 2, 3}, 2);
  for (const Device& device : testing::test_devices()) {
    CommandEncoder encoder(device);
    const Buffer y = device.alloc(DType::f32, {6, 2});
    grouped_matmul_forward(encoder, upload(device, x), upload(device, w), upload_offsets(device, c.sizes), y);
    encoder.commit_and_wait();
    testing::expect_close("y", y, oracle::grouped_matmul(c, x.values, w.values), {1.0, 0x1p-20});
  }
}

TEST(GroupedMatmul, G4_ExpertsWithoutRowsHaveGradientZero) {
  for (const Device& device : testing::test_devices()) {
    const testing::Poison poison(device);
    const std::vector<std::int64_t> sizes = {162, 0, 2577, 446, 0, 83};
    const std::int64_t rows = 3268, n = 6, k = 5;
    for (const DType dtype : testing::kValueDtypes) {
      CommandEncoder encoder(device);
      const Buffer dw = device.alloc_uninitialized(dtype, {6, n, k});
      grouped_matmul_backward(encoder, upload(device, testing::random_tensor(dtype, {rows, k}, 1)),
                              device.alloc(dtype, {6, n, k}), upload_offsets(device, sizes),
                              upload(device, testing::random_tensor(dtype, {rows, n}, 2)), {},
                              {dw, Accumulate::no});
      encoder.commit_and_wait();
      const std::vector<double> found = testing::download(dw).values;
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i] == 0.0, sizes[i / (n * k)] == 0) << i;
    }
  }
}

// Sums in f32: they may pass 65504 and come back.
TEST(GroupedMatmul, RangeOfF16) {
  for (const Device& device : testing::test_devices()) {
    const Buffer x = testing::upload(device, {DType::f16, {3, 2}, {6e4, 6e4, -6e4, -6e4, 6e4, 6e4}});
    const Buffer w = testing::upload(device, {DType::f16, {1, 2, 2}, {1.0, -1.0, 1.0, 1.0}});
    const Buffer offsets = upload_offsets(device, {3});
    const Buffer y = device.alloc(DType::f16, {3, 2}), dw = device.alloc(DType::f16, {1, 2, 2});
    CommandEncoder encoder(device);
    grouped_matmul_forward(encoder, x, w, offsets, y);
    grouped_matmul_backward(encoder, x, w, offsets,
                            testing::upload(device, {DType::f16, {3, 2}, {1.0, 1.0, -1.0, 0.0, -1.0, -1.0}}),
                            {}, {dw, Accumulate::no});
    encoder.commit_and_wait();
    EXPECT_EQ(testing::download(y).values, (Doubles{0.0, HUGE_VAL, 0.0, -HUGE_VAL, 0.0, HUGE_VAL}));
    EXPECT_EQ(testing::download(dw).values, (Doubles{6e4, 6e4, 0.0, 0.0}));
  }
}

TEST(GroupedMatmul, BadOffsetsAreReportedAndOutputsAreZero) {
  for (const Device& device : testing::test_devices()) {
    const Buffer x = upload(device, testing::random_tensor(DType::f32, {6, 4}, 1));
    const Buffer w = upload(device, testing::random_tensor(DType::f32, {3, 5, 4}, 2));
    const std::vector<std::pair<std::vector<std::uint32_t>, const char*>> cases = {
        {{0, 7, 7, 6}, "7"},
        {{0, 3, 2, 6}, "2"},
        {{1, 2, 3, 6}, "1"},
        {{0, 2, 3, 5}, "5"},
        {{0, 2, 4294967295u, 6}, "4294967295"}};
    for (const auto& [offsets, text] : cases) {
      CommandEncoder encoder(device);
      const Buffer y = upload(device, testing::random_tensor(DType::f32, {6, 5}, 3));
      grouped_matmul_forward(encoder, x, w, Buffer::from(device, {4}, offsets), y);
      MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range, text);
      for (const float v : y.to_vector<float>()) EXPECT_EQ(v, 0.0f);
    }
  }
}

TEST(GroupedMatmul, EmptyBatch) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(device.alloc(DType::f32, {0, 4}));
    const Var w = tape.parameter(device.alloc(DType::f32, {3, 5, 4}));
    const Var y = grouped_matmul(x, w, upload_offsets(device, {0, 0, 0}));
    EXPECT_EQ(y.shape(), (Shape{0, 5}));
    tape.backward(y, y.value());
    testing::expect_close("dw", w.grad(), Doubles(60, 0.0), {0.0, 0.0});
  }
}

TEST(GroupedMatmul, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const auto make = [&](DType dtype, const Shape& shape) { return device.alloc(dtype, shape); };
  const Buffer x = make(DType::f32, {6, 4}), w = make(DType::f32, {3, 5, 4}), y = make(DType::f32, {6, 5});
  const Buffer offsets = upload_offsets(device, {1, 2, 3});
  const auto code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(grouped_matmul_forward(encoder, Buffer(), w, offsets, y), code,
                       "grouped_matmul: x is null");
  MIXTAPE_EXPECT_ERROR(grouped_matmul_forward(encoder, x, make(DType::f32, {3, 5, 3}), offsets, y), code,
                       "w is f32[3,5,3]");
  MIXTAPE_EXPECT_ERROR(grouped_matmul_forward(encoder, x, make(DType::bf16, {3, 5, 4}), offsets, y), code,
                       "w is bf16[3,5,4]");
  MIXTAPE_EXPECT_ERROR(grouped_matmul_forward(encoder, x, w, upload_offsets(device, {1, 5}), y), code,
                       "offsets is u32[3], expected u32[4]");
  MIXTAPE_EXPECT_ERROR(grouped_matmul_forward(encoder, x, w, offsets, make(DType::f32, {6, 4})), code,
                       "y is f32[6,4]");
  MIXTAPE_EXPECT_ERROR(
      grouped_matmul_backward(encoder, x, w, offsets, y, {}, {make(DType::f32, {3, 4}), Accumulate::no}),
      code, "dw is f32[3,4]");
  MIXTAPE_EXPECT_ERROR(
      grouped_matmul_backward(encoder, {}, w, offsets, y, {}, {make(DType::f32, {3, 5, 4}), Accumulate::no}),
      code, "x is null");
  const Buffer same = make(DType::f32, {4, 4});
  MIXTAPE_EXPECT_ERROR(grouped_matmul_forward(encoder, same, make(DType::f32, {3, 4, 4}),
                                              upload_offsets(device, {1, 1, 2}), same),
                       code, "shares memory");
}

}  // namespace
}  // namespace mixtape
