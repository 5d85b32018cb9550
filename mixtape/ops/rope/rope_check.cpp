#include "mixtape/ops/rope/rope_check.h"

#include <cmath>

#include "mixtape/ops/rope/rope_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::HostTensor;
using testing::OpCheck;

HostTensor rope_frequencies(std::int64_t pairs) {
  Doubles values;
  for (std::int64_t i = 0; i < pairs; ++i) {
    values.push_back(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(pairs)));
  }
  return testing::make_tensor(DType::f32, {pairs}, values);
}

OpCheck rope_check(const Device& device, const RopeCase& c) {
  const std::int64_t batch = c.shape[0], length = c.shape[1], heads = c.shape[2], head_dim = c.shape[3];
  const HostTensor inv_freq = rope_frequencies(c.pairs);
  const Shape position_shape = c.shares_positions ? Shape{length} : Shape{batch, length};
  const HostTensor positions = testing::random_indices(position_shape, 5, c.max_position + 1);
  Doubles each;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t s = 0; s < length; ++s) {
      each.push_back(positions.values[c.shares_positions ? s : b * length + s]);
    }
  }
  const bool is_interleaved = c.options.pairs == RopePairs::interleaved;
  const auto rotate = [=](const auto& x, double sign) {
    return oracle::rope(x, heads, head_dim, each, inv_freq.values, is_interleaved, double{c.options.factor},
                        sign);
  };
  OpCheck check;
  check.name = str("rope ", c.dtype, c.shape, " d ", 2 * c.pairs, is_interleaved ? " interleaved" : "");
  check.inputs = {testing::random_tensor(c.dtype, c.shape, 1)};
  check.op = [device_positions = upload(device, positions), table = upload(device, inv_freq),
              options = c.options](const std::vector<Var>& v) {
    return rope(v[0], device_positions, table, options);
  };
  check.forward = [=](const auto& x) { return rotate(x[0], 1.0); };
  check.complex_forward = [=](const auto& x) { return rotate(x[0], 1.0); };
  check.backward = [=](const auto&, const Doubles& dy) -> std::vector<Doubles> { return {rotate(dy, -1.0)}; };
  check.forward_bound = {0.5, 3.0 * 0x1p-24 * c.options.factor * 10.0};
  check.backward_bound = check.forward_bound;
  check.prove_oracle = c.shape.numel() <= 600;
  return check;
}

std::vector<OpCheck> rope_checks(const Device& device, DType dtype) {
  std::vector<OpCheck> checks;
  for (const RopeOptions options :
       {RopeOptions{RopePairs::half_split, 1.0f}, RopeOptions{RopePairs::interleaved, 1.25f}}) {
    for (const RopeCase& c :
         {RopeCase{dtype, {0, 3, 2, 8}, 4, options}, RopeCase{dtype, {2, 3, 2, 8}, 4, options},
          RopeCase{dtype, {2, 3, 1, 9}, 1, options}, RopeCase{dtype, {1, 5, 3, 64}, 32, options},
          RopeCase{dtype, {2, 2, 3, 70}, 17, options, 100, true},
          RopeCase{dtype, {3, 4, 2, 128}, 32, options, 1}})
      checks.push_back(rope_check(device, c));
  }
  return checks;
}

MIXTAPE_OP_CHECKS(rope, testing::kValueDtypes, rope_checks)

}  // namespace mixtape
