// The kernels for matrix units, on the simulator: they are part of this program only.
#include "mixtape/ops/grouped_matmul/grouped_matmul.h"
#include "mixtape/ops/grouped_matmul/grouped_matmul_cuda.cu"
#include "mixtape/ops/grouped_matmul/grouped_matmul_oracle.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using oracle::GroupedMatmulCase;
using testing::Doubles;

struct Products {
  Buffer y, dx, dw;
};

// Outputs in `out` where an op may have two types; gradients are added to what is there.
Products multiply(const GroupedMatmulCase& c, DType in, DType out, Accumulate accumulate) {
  const Device device = Device::open("sim");
  const auto experts = static_cast<std::int64_t>(c.sizes.size());
  std::vector<std::uint32_t> ends{0};
  for (const std::int64_t s : c.sizes) ends.push_back(ends.back() + static_cast<std::uint32_t>(s));
  const Buffer offsets = Buffer::from(device, {experts + 1}, ends);
  const Buffer x = upload(device, testing::random_tensor(in, {c.rows(), c.k}, 1));
  const Buffer w = upload(device, testing::random_tensor(in, {experts, c.n, c.k}, 2));
  const Buffer dy = upload(device, testing::random_tensor(in, {c.rows(), c.n}, 3));
  const Products p{device.alloc_uninitialized(out, {c.rows(), c.n}),
                   upload(device, testing::random_tensor(in, {c.rows(), c.k}, 4)),
                   upload(device, testing::random_tensor(in, {experts, c.n, c.k}, 5))};
  CommandEncoder encoder(device);
  grouped_matmul_forward(encoder, x, w, offsets, p.y);
  grouped_matmul_backward(encoder, x, w, offsets, dy, {p.dx, accumulate}, {p.dw, accumulate});
  encoder.commit_and_wait();
  return p;
}

void check(const GroupedMatmulCase& c, DType in, DType out, Accumulate accumulate) {
  const auto experts = static_cast<std::int64_t>(c.sizes.size());
  const auto values = [in](const Shape& shape, std::uint64_t seed) {
    return testing::random_tensor(in, shape, seed).values;
  };
  const Doubles x = values({c.rows(), c.k}, 1), w = values({experts, c.n, c.k}, 2);
  std::vector<Doubles> gradients = oracle::grouped_matmul_backward(c, x, w, values({c.rows(), c.n}, 3));
  if (accumulate == Accumulate::yes) {
    const Doubles dx = values({c.rows(), c.k}, 4), dw = values({experts, c.n, c.k}, 5);
    for (std::size_t i = 0; i < dx.size(); ++i) gradients[0][i] += dx[i];
    for (std::size_t i = 0; i < dw.size(); ++i) gradients[1][i] += dw[i];
  }
  const Products p = multiply(c, in, out, accumulate);
  testing::expect_close("y", p.y, oracle::grouped_matmul(c, x, w), {1.0, 1e-4});
  testing::expect_close("dx", p.dx, gradients[0], {1.0, 1e-4});
  testing::expect_close("dw", p.dw, gradients[1], {1.0, 1e-4});
}

TEST(GroupedMatmulTensor, MatchesOracle) {
  check({136, 200, {130, 0, 3, 17}}, DType::bf16, DType::bf16, Accumulate::no);
  check({24, 264, {9, 70}}, DType::bf16, DType::f32, Accumulate::yes);
  check({136, 40, {17, 3}}, DType::f16, DType::f16, Accumulate::yes);
  check({24, 264, {9, 70}}, DType::f16, DType::f32, Accumulate::no);
  check({40, 24, {300}}, DType::bf16, DType::f32, Accumulate::yes);
}

}  // namespace
}  // namespace mixtape
