// The kernels for matrix units, on the simulator: they are part of this program only.
#include <cmath>

#include "mixtape/core/dtype.h"
#include "mixtape/ops/quantized_matmul/few_rows_cuda.cu"
#include "mixtape/ops/quantized_matmul/quantized_matmul.h"
#include "mixtape/ops/quantized_matmul/quantized_matmul_check.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/launches.h"

namespace mixtape {
namespace {

const Device kDevice = Device::open("sim");

void check(const QuantizedMatmulCase& c) {
  for (const testing::OpCheck& check : quantized_matmul_case(kDevice, c)) check_op(kDevice, check);
}

// Terms that end within a warp's 128, and so many that warps take turns; columns that end within a block's 16.
TEST(FewRows, MatchesOracle) {
  for (const std::int32_t bits : {2, 3, 4, 5, 6, 8}) {
    for (const std::int64_t k : {32, 96, 2208})
      check({{19, k, {3}}, {bits, 32}, DType::bf16, DType::bf16, DType::bf16});
    check({{40, 256, {8}}, {bits, 128}, DType::f16, DType::f16, DType::f32});
  }
  for (const std::int64_t rows : {1, 2, 5, 7, 8})
    check({{33, 192, {rows}}, {4, 64}, DType::bf16, DType::f32, DType::bf16});
}

// Experts without rows, with 8 and with more, which are several blocks'.
TEST(FewRows, OfExpertsMatchesOracle) {
  for (const std::int32_t bits : {2, 3, 4, 5, 6, 8})
    check({{19, 96, {3, 0, 9, 1, 8}}, {bits, 32}, DType::bf16, DType::bf16, DType::bf16, true});
  check({{19, 128, {0, 0, 24}}, {4, 64}, DType::f16, DType::f16, DType::f32, true});
  check({{19, 64, {1, 0, 2}}, {4, 32}, DType::bf16, DType::f32, DType::bf16, true});
}

bool runs(const QuantizedMatmulCase& c, const std::string& kernel) {
  std::vector<Buffer> b;
  for (const testing::HostTensor& t : inputs_of(c)) b.push_back(upload(kDevice, t));
  const Buffer y = kDevice.alloc(c.y, {c.sizes.rows(), c.sizes.n});
  const Buffer offsets = c.is_grouped ? upload_offsets(kDevice, c.sizes.sizes) : Buffer();
  return testing::launches(kDevice, kernel, [&](CommandEncoder& encoder) {
    quantized_matmul_forward(encoder, b[0], {b[1], b[2], b[3], c.format}, offsets, y);
  });
}

TEST(FewRows, TakesUpToEightRowsOfGroupsFrom32On) {
  const auto takes = [](std::int64_t rows, std::int32_t group, DType x) {
    return runs({{19, 128, {rows}}, {4, group}, x, x, x}, "quantized_few_rows_tensor_");
  };
  EXPECT_TRUE(takes(8, 32, DType::bf16));
  EXPECT_TRUE(takes(1, 128, DType::f16));
  EXPECT_FALSE(takes(9, 32, DType::bf16));
  EXPECT_FALSE(takes(1, 16, DType::bf16));
  EXPECT_FALSE(takes(1, 32, DType::f32));
}

TEST(FewRows, TakesEightRowsAnExpertInTheMean) {
  const auto takes = [](const std::vector<std::int64_t>& rows, std::int32_t group) {
    return runs({{19, 128, rows}, {4, group}, DType::bf16, DType::bf16, DType::bf16, true},
                "quantized_few_rows_grouped_");
  };
  EXPECT_TRUE(takes({16, 0}, 32));
  EXPECT_FALSE(takes({16, 1}, 32));
  EXPECT_FALSE(takes({1, 1}, 16));
}

TEST(FewRows, OfBadOffsetsAreZero) {
  const QuantizedMatmulCase c{{18, 64, {9, 2}}, {4, 32}, DType::bf16, DType::bf16, DType::f32, true};
  const std::vector<testing::HostTensor> in = inputs_of(c);
  const Buffer y = upload(kDevice, testing::random_tensor(c.y, {11, 18}, 5));
  const Buffer offsets = Buffer::from(kDevice, {3}, std::vector<std::uint32_t>{0, 12, 11});
  CommandEncoder encoder(kDevice);
  quantized_matmul_forward(encoder, upload(kDevice, in[0]),
                           {upload(kDevice, in[1]), upload(kDevice, in[2]), upload(kDevice, in[3]), c.format},
                           offsets, y);
  MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range, "12");
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>(11 * 18, 0.0f));
}

// A row of x that holds a NaN, and a weight whose scale is one, spoil no other sums.
TEST(FewRows, NanStaysInItsRowAndColumn) {
  const QuantizedMatmulCase c{{18, 64, {3}}, {4, 32}, DType::bf16, DType::bf16, DType::f32};
  std::vector<testing::HostTensor> in = inputs_of(c);
  in[0].values[64 + 5] = NAN;
  in[2].values[17 * 2 + 1] = NAN;
  const Buffer y = kDevice.alloc(c.y, {3, 18});
  CommandEncoder encoder(kDevice);
  quantized_matmul_forward(encoder, upload(kDevice, in[0]),
                           {upload(kDevice, in[1]), upload(kDevice, in[2]), upload(kDevice, in[3]), c.format},
                           Buffer(), y);
  encoder.commit_and_wait();
  const std::vector<float> values = y.to_vector<float>();
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(std::isnan(values[i]), i / 18 == 1 || i % 18 == 17) << i;
}

}  // namespace
}  // namespace mixtape
