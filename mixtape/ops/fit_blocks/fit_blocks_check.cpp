#include "mixtape/ops/fit_blocks/fit_blocks_check.h"

#include "mixtape/ops/fit_affine/fit_inputs_check.h"
#include "mixtape/ops/fit_blocks/fit_blocks_oracle.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/ops/quantize/quantize_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::HostTensor;
using testing::OpCheck;

QuantizedWeight fit_in_blocks(const Buffer& w, const Buffer& importance, BlockType type, BlockFit how) {
  const testing::Poison poison(w.device());
  CommandEncoder encoder(w.device());
  const QuantizedWeight q = alloc_blocks(w.device(), w.shape(), type);
  fit_blocks_forward(encoder, w, importance, q, how);
  encoder.commit_and_wait();
  return q;
}

Doubles decoded_blocks(const QuantizedWeight& q) {
  const BlockFormat& f = block_format(q.blocks.type);
  const auto values = [](const Buffer& b) { return b ? testing::download(b).values : Doubles(); };
  const Doubles words = values(q.codes), d = values(q.blocks.scales), e = values(q.blocks.biases),
                sub_scales = values(q.blocks.sub_scales), sub_biases = values(q.blocks.sub_biases);
  const std::int64_t packed = q.codes.shape().cols(), cols = packed * 32 / f.affine.bits;
  Doubles all;
  for (std::int64_t row = 0; row < q.codes.shape().rows(); ++row) {
    for (std::int64_t c = 0; c < cols; ++c) {
      const auto group = static_cast<std::size_t>(all.size()) / static_cast<std::size_t>(f.affine.group_size);
      const std::size_t block = group / static_cast<std::size_t>(f.groups);
      const double code = oracle::code_at(words, row, c, packed, f.affine.bits);
      const double scale = d[block] * (sub_scales.empty() ? 1.0 : sub_scales[group]);
      const double bias =
          f.has_biases ? e[block] * (sub_biases.empty() ? 1.0 : sub_biases[group]) : -f.zero_code * scale;
      all.push_back(code * scale + bias);
    }
  }
  return all;
}

namespace {

Doubles importance_or_ones(const HostTensor& importance, std::int64_t cols) {
  return importance.values.empty() ? Doubles(static_cast<std::size_t>(cols), 1.0) : importance.values;
}

// The block whose first weight is w[i].
oracle::BlockProblem problem_at(std::size_t i, const Doubles& w, const Doubles& h, std::int64_t cols,
                                const BlockFormat& f) {
  const auto size = static_cast<std::size_t>(f.block_elements()), columns = static_cast<std::size_t>(cols);
  const std::size_t per_expert = w.size() / (h.size() / columns);
  const auto part = [&](const Doubles& all, std::size_t from) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(from);
    return Doubles(begin, begin + static_cast<std::ptrdiff_t>(size));
  };
  const Doubles own = part(h, i / per_expert * columns + i % columns);
  oracle::BlockProblem problem{
      f, part(w, i), oracle::block_importance(own, static_cast<std::size_t>(f.affine.group_size)), 1.0};
  for (std::size_t c = 0; c < size; ++c) problem.w[c] = problem.h[c] > 0.0 ? problem.w[c] : 0.0;
  problem.spread = oracle::spread_of(problem.w);
  return problem;
}

Doubles errors_of_oracle(const Doubles& w, const Doubles& h, std::int64_t cols, const BlockFormat& f,
                         BlockFit how) {
  Doubles errors;
  for (std::size_t i = 0; i < w.size(); i += static_cast<std::size_t>(f.block_elements())) {
    const oracle::BlockProblem problem = problem_at(i, w, h, cols, f);
    errors.push_back(
        (how == BlockFit::plain ? oracle::plain_block(problem) : oracle::fit_block(problem)).error);
  }
  return errors;
}

}  // namespace

Doubles block_errors(const Doubles& w, const Doubles& h, const Doubles& decoded, std::int64_t cols,
                     const BlockFormat& f) {
  const auto size = static_cast<std::size_t>(f.block_elements());
  Doubles errors(w.size() / size);
  for (std::size_t b = 0; b < errors.size(); ++b) {
    const oracle::BlockProblem problem = problem_at(b * size, w, h, cols, f);
    for (std::size_t c = 0; c < size; ++c) {
      const double r = w[b * size + c] - decoded[b * size + c];
      errors[b] += problem.share(c) * r * r;
    }
  }
  return errors;
}

OpCheck fit_blocks_check(const HostTensor& w, const HostTensor& importance, BlockType type, BlockFit how) {
  const BlockFormat& f = block_format(type);
  const std::int64_t cols = w.shape.cols();
  const Doubles h = importance_or_ones(importance, cols);
  OpCheck check;
  check.name = str("fit_blocks ", f.name, how == BlockFit::plain ? " plain " : " ", w.shape, " importance ",
                   importance.shape);
  check.inputs = {w};
  if (!importance.values.empty()) check.inputs.push_back(importance);
  check.differentiable.assign(check.inputs.size(), false);
  check.op = [=, &f](const std::vector<Var>& v) {
    const QuantizedWeight q = fit_in_blocks(v[0].value(), v.size() > 1 ? v[1].value() : Buffer(), type, how);
    const Doubles errors =
        block_errors(testing::download(v[0].value()).values, h, decoded_blocks(q), cols, f);
    return v[0].tape().constant(
        upload(v[0].tape().device(), testing::make_tensor(DType::f32, q.blocks.scales.shape(), errors)));
  };
  check.forward = [=, &f](const auto& v) { return errors_of_oracle(v[0], h, cols, f, how); };
  // Plain rounding has one answer, but for halves; two searches end in minima of about the same error.
  check.forward_bound = {(how == BlockFit::plain ? 0x1p-10 : 0.02) / epsilon(DType::f32), 1e-30};
  return check;
}

std::vector<OpCheck> fit_blocks_checks(const Device&, DType) {
  const HostTensor none{DType::f32, {0}, {}};
  std::vector<OpCheck> checks = {fit_blocks_check(testing::random_tensor(DType::f32, {0, 256}, 1), none,
                                                  BlockType::q4_k, BlockFit::search)};
  for (const BlockType type : kBlockTypes) {
    const HostTensor w = testing::random_tensor(DType::f32, {3, 512}, 1, 0.02);
    checks.push_back(fit_blocks_check(w, none, type, BlockFit::plain));
    checks.push_back(fit_blocks_check(w, none, type, BlockFit::search));
    checks.push_back(fit_blocks_check(heavy_tailed_tensor({5, 256}, 2), random_importance({256}, 3), type,
                                      BlockFit::search));
    checks.push_back(fit_blocks_check(testing::random_tensor(DType::f32, {2, 2, 256}, 4),
                                      random_importance({2, 256}, 5), type, BlockFit::search));
  }
  return checks;
}

constexpr DType kFitBlocksDtypes[] = {DType::f32};
MIXTAPE_OP_CHECKS(fit_blocks, kFitBlocksDtypes, fit_blocks_checks)

}  // namespace mixtape
