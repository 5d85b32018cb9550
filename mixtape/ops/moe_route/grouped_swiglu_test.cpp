#include "mixtape/ops/moe_route/grouped_swiglu.h"

#include "mixtape/ops/grouped_matmul/grouped_matmul.h"
#include "mixtape/ops/grouped_matmul/grouped_matmul_check.h"
#include "mixtape/ops/moe_route/grouped_swiglu_check.h"
#include "mixtape/ops/silu_mul/silu_mul.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::HostTensor;

TEST(GroupedSwiglu, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, grouped_swiglu_checks(device, dtype));
  }
}

// Of several tiles of rows and columns, and more than one step of the sums: the bits of the ops that it is made of, but for
// dx, which they round twice.
TEST(GroupedSwiglu, GivesWhatItsPartsGive) {
  const std::vector<std::int64_t> sizes = {130, 0, 37};
  const HostTensor x = testing::random_tensor(DType::bf16, {167, 136}, 1);
  const HostTensor gate = testing::random_tensor(DType::bf16, {3, 200, 136}, 2, 0.1);
  const HostTensor up = testing::random_tensor(DType::bf16, {3, 200, 136}, 3, 0.1);
  const HostTensor dy = testing::random_tensor(DType::bf16, {167, 200}, 4);
  for (const Device& device : testing::test_devices()) {
    const auto run = [&](bool in_parts) {
      Tape tape(device);
      std::vector<Var> v;
      for (const HostTensor* t : {&x, &gate, &up}) v.push_back(tape.parameter(upload(device, *t)));
      const Buffer offsets = upload_offsets(device, sizes);
      const Var y = in_parts
                        ? silu_mul(grouped_matmul(v[0], v[1], offsets), grouped_matmul(v[0], v[2], offsets))
                        : grouped_swiglu(v[0], v[1], v[2], offsets);
      tape.backward(y, upload(device, dy));
      tape.encoder().commit_and_wait();
      std::vector<testing::Doubles> all = {testing::download(y.value()).values};
      for (const Var& each : v) all.push_back(testing::download(each.grad()).values);
      return all;
    };
    const auto whole = run(false), parts = run(true);
    for (const std::size_t same : {0, 2, 3}) EXPECT_EQ(whole[same], parts[same]) << device.name() << same;
    const double rounding = epsilon(DType::bf16) * testing::largest(parts[1]);
    for (std::size_t i = 0; i < parts[1].size(); ++i)
      EXPECT_NEAR(whole[1][i], parts[1][i], 2.0 * rounding) << i;
  }
}

TEST(GroupedSwiglu, GradientsOneByOne) {
  for (const Device& device : testing::test_devices()) {
    for (int wanted = 0; wanted < 3; ++wanted) {
      testing::OpCheck check = grouped_swiglu_checks(device, DType::f32)[1];  // the first has no rows
      check.differentiable = {wanted == 0, wanted == 1, wanted == 2};
      check_op(device, check);
    }
  }
}

TEST(GroupedSwiglu, RefusesBadArguments) {
  Tape tape(Device::cpu());
  const auto make = [&](const Shape& shape) {
    return tape.parameter(tape.device().alloc(DType::f32, shape));
  };
  const Buffer offsets = upload_offsets(tape.device(), {1, 2, 3});
  MIXTAPE_EXPECT_ERROR(grouped_swiglu(make({6, 4}), make({3, 5, 4}), make({3, 4, 4}), offsets),
                       ErrorCode::invalid_argument, "grouped_swiglu: x is f32[6,4]");
}

}  // namespace
}  // namespace mixtape
