// The kernels for rows in shared memory, on the simulator: they are part of this program only.
#include "mixtape/ops/rms_norm/rms_norm.h"
#include "mixtape/ops/rms_norm/rms_norm_check.h"
#include "mixtape/ops/rms_norm/rms_norm_cuda.cu"
#include "mixtape/ops/rms_norm/rms_norm_oracle.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::download;
using testing::upload;

constexpr float kEps = 1e-3f;

// Three blocks for eleven rows: what was fetched first is overwritten by the fourth row of a block.
void expect_close(const std::string& name, DType dtype, DType weight_dtype, std::int64_t cols) {
  const Device device = Device::open("sim");
  const Shape shape{11, cols};
  const testing::HostTensor x = testing::random_tensor(dtype, shape, 1),
                            w = testing::random_tensor(weight_dtype, {cols}, 2);
  const Buffer y = device.alloc(dtype, shape), rstd = device.alloc(DType::f32, {11});
  CommandEncoder encoder(device);
  encoder.encode({.kernel = str("rms_norm_forward_", name, "_fetched"),
                  .params = params_bytes(RmsNormParams{11, cols, 0, kEps, 0, 0}),
                  .reads = {upload(device, x), upload(device, w)},
                  .writes = {y, rstd},
                  .grid = {3, 1, 1},
                  .block = {32, 1, 1},
                  .shared_bytes = static_cast<std::uint32_t>(3 * cols * static_cast<std::int64_t>(size_of(dtype)))});
  encoder.commit_and_wait();
  const testing::Doubles wanted = oracle::rms_norm(x.values, w.values, static_cast<double>(kEps));
  testing::expect_close(str(name, " ", cols), download(y), wanted, {dtype == DType::f32 ? 133.0 : 1.0, 0.0});
  for (std::int64_t row = 0; row < 11; ++row) {
    double sum = 0.0;
    for (std::int64_t c = 0; c < cols; ++c)
      sum += std::pow(x.values[static_cast<std::size_t>(row * cols + c)], 2);
    const double wanted_rstd = 1.0 / std::sqrt(sum / static_cast<double>(cols) + static_cast<double>(kEps));
    EXPECT_NEAR(rstd.to_vector<float>()[static_cast<std::size_t>(row)], wanted_rstd, 1e-5 * wanted_rstd);
  }
}

TEST(RmsNormFetched, MatchesOracle) {
  for (const std::int64_t cols : {8, 264, 4096}) {
    expect_close("f32", DType::f32, DType::f32, cols);
    expect_close("bf16", DType::bf16, DType::bf16, cols);
    expect_close("bf16_w_f32", DType::bf16, DType::f32, cols);
    expect_close("f16", DType::f16, DType::f16, cols);
    expect_close("f16_w_f32", DType::f16, DType::f32, cols);
  }
}

// As the launcher chooses.
TEST(RmsNormFetched, ManyRows) {
  check_op(Device::open("sim"), rms_norm_check(DType::bf16, DType::bf16, {1025, 1032}), 1);
}

}  // namespace
}  // namespace mixtape
