// The kernels for clusters, on the simulator, whose clusters have one block: they are part of this program
// only.
#include "mixtape/ops/softmax/softmax.h"
#include "mixtape/ops/softmax/softmax_cuda.cu"
#include "mixtape/ops/softmax/softmax_oracle.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::upload;

// Forward a block has two rows, the last one of an odd number its own.
std::vector<Buffer> run(DType dtype, const std::string& name, const Shape& shape, std::uint32_t accumulate,
                        const std::vector<Buffer>& reads, std::uint32_t threads) {
  const Device device = Device::open("sim");
  CommandEncoder encoder(device);
  const Buffer out = device.alloc(dtype, shape);
  const auto rows = static_cast<std::uint32_t>(shape.rows());
  const std::uint32_t blocks = name == "softmax_forward" ? (rows + 1) / 2 : rows;
  encoder.encode({.kernel = str(name, "_", dtype, "_cluster1_", dtype == DType::f32 ? 8 : 10),
                  .params = params_bytes(SoftmaxParams{shape.rows(), shape.cols(), accumulate}),
                  .reads = reads,
                  .writes = {out},
                  .grid = {blocks, 1, 1},
                  .block = {threads, 1, 1},
                  .shared_bytes = threads * (dtype == DType::f32 ? 128 : 160)});
  encoder.commit_and_wait();
  return {out};
}

TEST(SoftmaxCluster, MatchesOracle) {
  const Device device = Device::open("sim");
  for (const DType dtype : testing::kValueDtypes) {
    for (const std::int64_t cols : {8, 264, 4096}) {
      const Shape shape{5, cols};
      const testing::HostTensor x = testing::random_tensor(dtype, shape, 1, 2.0);
      const testing::Doubles y = oracle::softmax(x.values, cols);
      const Buffer found = run(dtype, "softmax_forward", shape, 0, {upload(device, x)}, 128)[0];
      testing::expect_close(str("forward ", cols), testing::download(found), y, {52.0, 1e-30});
      const testing::HostTensor y_rounded = testing::download(found);
      const testing::HostTensor dy = testing::random_tensor(dtype, shape, 2);
      const Buffer dx = run(dtype, "softmax_backward", shape, 0, {found, upload(device, dy)}, 128)[0];
      testing::expect_close(str("backward ", cols), testing::download(dx),
                            oracle::softmax_backward(y_rounded.values, dy.values, cols), {4.0, 1e-5});
    }
  }
}

// Logits whose rounded products with log2(e) would be off by whole powers.
TEST(SoftmaxCluster, LargeLogitsKeepTheirDifferences) {
  const Device device = Device::open("sim");
  for (const double offset : {1000.0, 60000.0, 1e8, 3e38, -1e8}) {
    testing::HostTensor x = testing::random_tensor(DType::bf16, {2, 264}, 1, 2.0);
    for (double& v : x.values)
      v = static_cast<double>(static_cast<float>(bf16(static_cast<float>(offset * (1.0 + v / 256)))));
    const Buffer y = run(DType::bf16, "softmax_forward", {2, 264}, 0, {upload(device, x)}, 64)[0];
    testing::expect_close(str("offset ", offset), testing::download(y), oracle::softmax(x.values, 264),
                          {1.0, 1e-37});
  }
}

TEST(SoftmaxCluster, A1_A4_MinusInfinityAndNan) {
  const Device device = Device::open("sim");
  std::vector<float> x(2 * 1024, -HUGE_VALF);
  x[1024 + 700] = NAN;
  const Buffer y =
      run(DType::f32, "softmax_forward", {2, 1024}, 0, {Buffer::from(device, {2, 1024}, x)}, 64)[0];
  for (const float v : y.to_vector<float>()) ASSERT_TRUE(std::isnan(v));
  std::fill(x.begin(), x.end(), -HUGE_VALF);
  x[5] = x[1024 + 1000] = 2.0f;  // warps without a finite entry add nothing
  const auto one =
      run(DType::f32, "softmax_forward", {2, 1024}, 0, {Buffer::from(device, {2, 1024}, x)}, 64)[0]
          .to_vector<float>();
  for (std::size_t i = 0; i < one.size(); ++i) ASSERT_EQ(one[i], x[i] == 2.0f ? 1.0f : 0.0f) << i;
}

}  // namespace
}  // namespace mixtape
