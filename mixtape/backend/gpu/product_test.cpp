#include "mixtape/backend/gpu/product_params.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::Doubles;

struct Case {
  DType in, out;
  std::int64_t m, n, k, batch = 1;
  bool trans_a = false, trans_b = false, accumulate = false;
};

// Rows of c lie three values further apart than they are long.
void check(const Device& device, const Case& c) {
  const std::int64_t row_c = c.n + 3, columns_a = c.trans_a ? c.m : c.k, columns_b = c.trans_b ? c.k : c.n;
  const testing::HostTensor a = testing::random_tensor(c.in, {c.batch, c.m * c.k / columns_a, columns_a}, 1),
                            b = testing::random_tensor(c.in, {c.batch, c.k * c.n / columns_b, columns_b}, 2),
                            before = testing::random_tensor(c.out, {c.batch, c.m, row_c}, 3);
  Doubles wanted = before.values;
  for (std::int64_t x = 0; x < c.batch; ++x) {
    for (std::int64_t i = 0; i < c.m; ++i) {
      for (std::int64_t j = 0; j < c.n; ++j) {
        double sum = 0.0;
        for (std::int64_t d = 0; d < c.k; ++d) {
          sum += a.values[static_cast<std::size_t>(x * c.m * c.k + (c.trans_a ? d * c.m + i : i * c.k + d))] *
                 b.values[static_cast<std::size_t>(x * c.k * c.n + (c.trans_b ? j * c.k + d : d * c.n + j))];
        }
        double& w = wanted[static_cast<std::size_t>((x * c.m + i) * row_c + j)];
        w = (c.accumulate ? w : 0.0) + 0.5 * sum;
      }
    }
  }
  const Buffer y = upload(device, before);
  const ProductParams p{c.m,       c.n,         c.k,       columns_a, columns_b,    row_c, c.m * c.k,
                        c.k * c.n, c.m * row_c, c.trans_a, c.trans_b, c.accumulate, 0.5f};
  const auto tiles = [](std::int64_t size) { return (size + kProductTile - 1) / kProductTile; };
  CommandEncoder encoder(device);
  encoder.encode({.kernel = str("product_", c.in, "_", c.out),
                  .params = params_bytes(p),
                  .reads = {upload(device, a), upload(device, b), upload(device, before)},
                  .writes = {y},
                  .grid = {static_cast<std::uint32_t>(tiles(c.m) * tiles(c.n) * c.batch), 1, 1},
                  .block = {256, 1, 1}});
  encoder.commit_and_wait();
  testing::expect_close("c", y, wanted, {1.0, 1e-4});
}

// The kernels of cards alone: the simulator's products, and the processor's, are others.
TEST(Product, MatchesTheSums) {
  for (const Device& device : testing::test_devices()) {
    if (device == Device::cpu()) continue;
    check(device, {DType::f32, DType::f32, 130, 37, 45, 2});
    check(device, {DType::f32, DType::f32, 9, 140, 20, 1, true, false, true});
    check(device, {DType::bf16, DType::bf16, 33, 7, 300, 1, false, true});
    check(device, {DType::bf16, DType::f32, 5, 64, 16, 3, true, true, true});
    check(device, {DType::f16, DType::f16, 16, 16, 1});
    check(device, {DType::f16, DType::f32, 1, 1, 0, 1, false, false, true});
  }
}

}  // namespace
}  // namespace mixtape
