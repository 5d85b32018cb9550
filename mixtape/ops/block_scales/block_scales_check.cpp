#include "mixtape/ops/block_scales/block_scales_check.h"

#include "mixtape/ops/block_scales/block_scales_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::HostTensor;
using testing::OpCheck;

HostTensor random_sub_scales(const Shape& groups, std::uint64_t seed, SubGrid grid) {
  const double middle = 0.5 * (grid.lowest + grid.highest), range = grid.highest - grid.lowest;
  HostTensor u = testing::random_tensor(DType::f32, groups, seed, 0.4 * range);
  for (double& v : u.values) v += middle;
  return testing::make_tensor(DType::f32, groups, u.values);
}

OpCheck block_scales_check(const Shape& blocks, const BlockScaleRule& rule) {
  const Shape groups = blocks.with(blocks.rank() - 1, blocks.cols() * rule.groups);
  const bool has_sub = rule.grid.is_stored();
  OpCheck check;
  check.name = str("block_scales ", blocks, " groups ", rule.groups, " grid ", rule.grid.lowest, " to ",
                   rule.grid.highest, " factor ", rule.factor);
  check.inputs = {testing::random_tensor(DType::f32, blocks, 1, 0.1)};
  if (has_sub) check.inputs.push_back(random_sub_scales(groups, 2, rule.grid));
  const auto u_of = [=](const auto& v) { return has_sub ? v[1] : std::decay_t<decltype(v[0])>(); };
  check.op = [=](const std::vector<Var>& v) { return block_scales(v[0], has_sub ? v[1] : Var(), rule); };
  check.forward = [=](const auto& v) { return oracle::block_scales(v[0], u_of(v), rule); };
  check.complex_forward = [=](const auto& v) { return oracle::block_scales(v[0], u_of(v), rule); };
  check.backward = [=](const auto& v, const Doubles& dy) {
    return oracle::block_scales_backward(v[0], u_of(v), dy, rule);
  };
  check.forward_bound = {0.0, 0.0};
  // |dy| is 0.8 on average, q half the grid's largest.
  const double n = rule.groups, largest = std::max(std::abs(rule.grid.lowest), std::abs(rule.grid.highest));
  check.backward_bound = {1.0, (n + 1.0) * 0x1p-24 * n * largest * std::abs(rule.factor)};
  return check;
}

std::vector<OpCheck> block_scales_checks(const Device&, DType) {
  return {block_scales_check({0, 2}, {8, {0, 63}}),
          block_scales_check({3, 2}, {8, {0, 63}}),
          block_scales_check({2, 3, 1}, {16, {0, 15}}),
          block_scales_check({5, 3}, {16, {-32, 31}}),
          block_scales_check({5, 3}, {16, {-32, 31}, -4.0f}),
          block_scales_check({7, 2}, {16, {-128, 127}, -32.0f}),
          block_scales_check({3, 5}, {1, {1, 1}}),
          block_scales_check({3, 5}, {1, {1, 1}, -128.0f}),
          block_scales_check({2, 2}, {3, {1, 1}, -8.0f}),
          block_scales_check({300}, {1, {0, 3}})};
}

constexpr DType kBlockScalesDtypes[] = {DType::f32};
MIXTAPE_OP_CHECKS(block_scales, kBlockScalesDtypes, block_scales_checks)

}  // namespace mixtape
