#include "mixtape/ops/norm_rope/norm_rope_check.h"

#include <algorithm>
#include <cmath>

#include "mixtape/ops/norm_rope/norm_rope_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::HostTensor;
using testing::OpCheck;

namespace {

constexpr float kEps = 1e-3f;
constexpr auto kEps64 = double{kEps};

// 1000^(-i/pairs), f32.
HostTensor frequencies(std::int64_t pairs) {
  Doubles values;
  for (std::int64_t i = 0; i < pairs; ++i)
    values.push_back(std::pow(1000.0, -static_cast<double>(i) / static_cast<double>(pairs)));
  return testing::make_tensor(DType::f32, {pairs}, values);
}

// Of every sequence, where they share them.
Doubles positions_of_each(const HostTensor& positions, std::int64_t batch, bool shares) {
  Doubles each;
  for (std::int64_t b = 0; b < (shares ? batch : 1); ++b)
    each.insert(each.end(), positions.values.begin(), positions.values.end());
  return each;
}

}  // namespace

// At most the contract's bounds: |x|, |w|, |dy| stay under 5, rstd under 2 where a head has more than a few dimensions,
// and a sum of mixed signs grows with the root of its length.
OpCheck norm_rope_check(const Device& device, const NormRopeCase& c) {
  const std::int64_t batch = c.shape[0], length = c.shape[1], heads = c.shape[2], dims = c.shape[3];
  const HostTensor inv_freq = frequencies(c.pairs);
  const HostTensor positions =
      testing::random_indices(c.shares_positions ? Shape{length} : Shape{batch, length}, 5, 1000);
  const bool is_interleaved = c.options.pairs == RopePairs::interleaved;
  const oracle::HeadTurns turn{
      heads,           dims,           positions_of_each(positions, batch, c.shares_positions),
      inv_freq.values, is_interleaved, double{c.options.factor}};
  const auto forward = [=](const auto& v) { return oracle::norm_rope(v[0], v[1], kEps64, turn); };
  OpCheck check;
  check.name = str("norm_rope ", c.dtype, c.shape, " w ", c.weight, " d ", 2 * c.pairs,
                   is_interleaved ? " interleaved" : "");
  check.inputs = {testing::random_tensor(c.dtype, c.shape, 1), testing::random_tensor(c.weight, {dims}, 2)};
  check.op = [turns = RopeTurns{upload(device, positions), upload(device, inv_freq), c.options}](
                 const std::vector<Var>& v) { return norm_rope(v[0], v[1], kEps, turns); };
  check.forward = forward;
  check.complex_forward = forward;
  check.backward = [=](const auto& v, const Doubles& dy) {
    return oracle::norm_rope_backward(v[0], v[1], kEps64, turn, dy);
  };
  const auto d = static_cast<double>(dims), rows = static_cast<double>(c.shape.rows());
  const double u = 0x1p-24 * double{c.options.factor};
  check.forward_bound = {1.0, (8.0 + d / 32) * u * 20.0};
  const double growth = std::max(12.0 + d / 16, 8.0 + rows / 64 + std::max(rows / 64, 32.0));
  check.backward_bound = {1.0, growth * u * 60.0 * std::max(1.0, std::sqrt(rows))};
  check.prove_oracle = c.shape.numel() <= 600;
  return check;
}

std::vector<OpCheck> norm_rope_checks(const Device& device, DType dtype) {
  std::vector<OpCheck> checks;
  for (const RopeOptions options :
       {RopeOptions{RopePairs::half_split, 1.0f}, RopeOptions{RopePairs::interleaved, 1.25f}}) {
    for (const NormRopeCase& c : {NormRopeCase{dtype, dtype, {0, 3, 2, 8}, 4, options},
                                  {dtype, dtype, {2, 3, 2, 8}, 4, options},
                                  {dtype, DType::f32, {2, 3, 5, 16}, 8, options},
                                  {dtype, dtype, {2, 3, 1, 9}, 1, options},
                                  {dtype, DType::f32, {3, 2, 3, 70}, 17, options, true},
                                  {dtype, dtype, {2, 5, 3, 64}, 32, options, true},
                                  {dtype, dtype, {2, 3, 2, 48}, 8, options}})
      checks.push_back(norm_rope_check(device, c));
  }
  return checks;
}

MIXTAPE_OP_CHECKS(norm_rope, testing::kValueDtypes, norm_rope_checks)

}  // namespace mixtape
