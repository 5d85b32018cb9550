#include "mixtape/ops/layout/layout_check.h"

#include "mixtape/ops/layout/layout.h"
#include "mixtape/ops/layout/layout_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using oracle::Moves;
using testing::Doubles;
using testing::OpCheck;

namespace {

OpCheck move_check(const std::string& name, DType dtype, const Shape& x, const Moves& moves) {
  OpCheck check;
  check.name = str(name, " ", dtype, x);
  check.inputs = {testing::random_tensor(dtype, x, 1)};
  check.forward = [=](const auto& v) { return oracle::moved(v[0], moves); };
  check.complex_forward = [=](const auto& v) { return oracle::moved(v[0], moves); };
  check.backward = [=](const auto& v, const Doubles& dy) -> std::vector<Doubles> {
    return {oracle::moved_back(v[0].size(), dy, moves)};
  };
  check.forward_bound = {0.0, 0.0};
  check.backward_bound = {0.5, 0.0};
  check.prove_oracle = x.numel() <= 600;
  return check;
}

Shape permuted_shape(const Shape& x, const Axes& axes) {
  std::vector<std::int64_t> dims;
  for (const std::int64_t a : axes) dims.push_back(x[a]);
  return Shape(dims);
}

Doubles oracle_concat(const std::vector<Doubles>& parts, const std::vector<std::int64_t>& sizes,
                      std::int64_t outer, std::int64_t inner) {
  Doubles y;
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      for (std::int64_t c = 0; c < sizes[i] * inner; ++c)
        y.push_back(parts[i][static_cast<std::size_t>(o * sizes[i] * inner + c)]);
    }
  }
  return y;
}

Doubles oracle_split(const Doubles& dy, std::size_t part, const std::vector<std::int64_t>& sizes,
                     std::int64_t outer, std::int64_t inner) {
  Doubles dx;
  std::size_t at = 0;
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      for (std::int64_t c = 0; c < sizes[i] * inner; ++c, ++at) {
        if (i == part) dx.push_back(dy[at]);
      }
    }
  }
  return dx;
}

OpCheck concat_check(DType dtype, std::int64_t axis) {
  const std::vector<std::int64_t> sizes = {2, 1, 3};
  const Shape base{4, 3, 5};
  OpCheck check;
  check.name = str("concat ", dtype, " axis ", axis);
  for (const std::int64_t n : sizes)
    check.inputs.push_back(testing::random_tensor(dtype, base.with(axis, n), static_cast<std::uint64_t>(n)));
  check.op = [axis](const std::vector<Var>& v) { return concat(v, axis - 3); };
  std::int64_t outer = 1, inner = 1;
  for (std::int64_t a = 0; a < 3; ++a) (a < axis ? outer : inner) *= a == axis ? 1 : base[a];
  check.forward = [=](const auto& v) { return oracle_concat(v, sizes, outer, inner); };
  check.backward = [=](const auto& v, const Doubles& dy) {
    std::vector<Doubles> dx;
    for (std::size_t i = 0; i < v.size(); ++i) dx.push_back(oracle_split(dy, i, sizes, outer, inner));
    return dx;
  };
  check.forward_bound = {0.0, 0.0};
  check.backward_bound = {0.0, 0.0};
  return check;
}

}  // namespace

std::vector<OpCheck> permute_checks(const Device&, DType dtype) {
  const std::vector<std::pair<Shape, Axes>> cases = {{{5}, {0}},
                                                     {{3, 4}, {1, 0}},
                                                     {{3, 4}, {0, 1}},
                                                     {{2, 3, 5, 4}, {0, 2, 1, 3}},
                                                     {{2, 3, 4}, {2, 0, 1}},
                                                     {{2, 3, 4}, {1, 2, 0}},
                                                     {{2, 3, 4}, {2, 1, 0}},
                                                     {{3, 1, 4, 1}, {3, 2, 1, 0}},
                                                     {{2, 3, 2, 3, 2}, {4, 1, 3, 0, 2}},
                                                     {{1, 1}, {1, 0}},
                                                     {{2, 3, 4, 5}, {3, 1, 2, 0}},
                                                     {{0, 3}, {1, 0}}};
  std::vector<OpCheck> checks;
  for (const auto& [x, axes] : cases) {
    checks.push_back(move_check("permute", dtype, x, oracle::permute(x, permuted_shape(x, axes), axes)));
    checks.back().op = [axes = axes](const std::vector<Var>& v) { return permute(v[0], axes); };
  }
  return checks;
}

std::vector<OpCheck> transpose_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks;
  for (const Shape& x :
       {Shape{0, 3, 4}, Shape{2, 3, 4}, Shape{2, 67, 1025}}) {  // the last: several tiles and chunks
    const Shape y{x[0], x[2], x[1]};
    checks.push_back(move_check("transpose", dtype, x, oracle::permute(x, y, {0, 2, 1})));
    checks.back().op = [](const std::vector<Var>& v) { return transpose(v[0]); };
  }
  return checks;
}

std::vector<OpCheck> reshape_checks(const Device&, DType dtype) {
  const Shape x{4, 6};
  OpCheck check = move_check("reshape", dtype, x, oracle::along_axis(x, x, 0, 0, 1));
  check.op = [](const std::vector<Var>& v) { return reshape(v[0], {3, 8}); };
  return {check, testing::empty_batch_check("reshape", {testing::random_tensor(dtype, {0, 6}, 1)},
                                            [](const std::vector<Var>& v) {
                                              return reshape(v[0], {3, 0});
                                            })};
}

std::vector<OpCheck> slice_checks(const Device&, DType dtype) {
  const Shape x{4, 5, 6};
  std::vector<OpCheck> checks;
  for (const std::int64_t axis : {0, 1, 2, -1}) {
    const std::int64_t a = axis < 0 ? axis + 3 : axis;
    checks.push_back(move_check("slice", dtype, x, oracle::along_axis(x, x.with(a, 2), a, 1, 1)));
    checks.back().op = [axis](const std::vector<Var>& v) { return slice(v[0], axis, 1, 3); };
  }
  checks.push_back(
      testing::empty_batch_check("slice", {testing::random_tensor(dtype, {0, 5}, 1)},
                                 [](const std::vector<Var>& v) { return slice(v[0], 1, 1, 3); }));
  checks.push_back(
      testing::empty_batch_check("slice", {testing::random_tensor(dtype, {4, 5}, 1)},
                                 [](const std::vector<Var>& v) { return slice(v[0], 1, 2, 2); }));
  return checks;
}

std::vector<OpCheck> repeat_checks(const Device&, DType dtype) {
  const Shape x{2, 3, 2, 5};
  std::vector<OpCheck> checks;
  for (const std::int64_t axis : {0, 1, 2, 3}) {
    for (const std::int64_t times : {1, 2, 4}) {
      const Moves moves = oracle::along_axis(x, x.with(axis, x[axis] * times), axis, 0, times);
      checks.push_back(move_check(str("repeat ", times), dtype, x, moves));
      checks.back().op = [=](const std::vector<Var>& v) { return repeat(v[0], axis, times); };
      checks.back().backward_bound = {0.51, 4.0 * 0x1p-24 * 16.0};
    }
  }
  checks.push_back(testing::empty_batch_check("repeat", {testing::random_tensor(dtype, {0, 5}, 1)},
                                              [](const std::vector<Var>& v) { return repeat(v[0], 1, 2); }));
  return checks;
}

std::vector<OpCheck> concat_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks;
  for (const std::int64_t axis : {0, 1, 2}) checks.push_back(concat_check(dtype, axis));
  checks.push_back(testing::empty_batch_check(
      "concat", {testing::random_tensor(dtype, {0, 5}, 1), testing::random_tensor(dtype, {0, 3}, 2)},
      [](const std::vector<Var>& v) { return concat(v, 1); }));
  return checks;
}

MIXTAPE_OP_CHECKS(permute, testing::kValueDtypes, permute_checks)
MIXTAPE_OP_CHECKS(transpose, testing::kValueDtypes, transpose_checks)
MIXTAPE_OP_CHECKS(reshape, testing::kValueDtypes, reshape_checks)
MIXTAPE_OP_CHECKS(slice, testing::kValueDtypes, slice_checks)
MIXTAPE_OP_CHECKS(repeat, testing::kValueDtypes, repeat_checks)
MIXTAPE_OP_CHECKS(concat, testing::kValueDtypes, concat_checks)

}  // namespace mixtape
