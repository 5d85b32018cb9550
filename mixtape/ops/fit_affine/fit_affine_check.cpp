#include "mixtape/ops/fit_affine/fit_affine_check.h"

#include <cmath>

#include "mixtape/autograd/tape.h"
#include "mixtape/ops/fit_affine/fit_affine_oracle.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::HostTensor;
using testing::OpCheck;

QuantizedWeight fit_weight(const Buffer& w, const Buffer& importance, AffineParams p, DType scale_dtype) {
  CommandEncoder encoder(w.device());
  QuantizedWeight q = alloc_quantized(w.device(), w.shape(), p, scale_dtype);
  fit_affine_forward(encoder, w, importance, q);
  encoder.commit_and_wait();
  return q;
}

namespace {

// What f32 arithmetic leaves: the searches part only where two pairs are equally good.
constexpr double kShare = 0x1p-16;

// Errors of the groups, from the values that the device decodes.
Var errors_of_fit(const std::vector<Var>& v, AffineParams p, DType scale_dtype, const Doubles& h) {
  const Buffer w = v[0].value();
  const QuantizedWeight q = fit_weight(w, v.size() > 1 ? v[1].value() : Buffer(), p, scale_dtype);
  const Buffer decoded = v[0].tape().alloc(DType::f32, w.shape());
  dequantize_affine_forward(v[0].tape().encoder(), q, decoded);
  v[0].tape().encoder().commit_and_wait();
  const Doubles errors = group_errors(testing::download(w).values, h, testing::download(decoded).values,
                                      w.shape().cols(), p.group_size);
  return v[0].tape().constant(upload(w.device(), testing::make_tensor(DType::f32, q.scales.shape(), errors)));
}

Doubles errors_of_oracle(const Doubles& w, const Doubles& h, std::int64_t cols, AffineParams p, DType dtype) {
  const auto size = static_cast<std::size_t>(p.group_size);
  const std::size_t per_expert = w.size() / (h.size() / static_cast<std::size_t>(cols));
  Doubles errors;
  for (std::size_t i = 0; i < w.size(); i += size) {
    const auto from = w.begin() + static_cast<std::ptrdiff_t>(i);
    const auto weights =
        h.begin() + static_cast<std::ptrdiff_t>(i / per_expert * static_cast<std::size_t>(cols) +
                                                i % static_cast<std::size_t>(cols));
    const auto n = static_cast<std::ptrdiff_t>(size);
    errors.push_back(oracle::fit_affine({{from, from + n}, {weights, weights + n}, p.bits, dtype}).error);
  }
  return errors;
}

}  // namespace

OpCheck fit_affine_check(DType scale_dtype, const HostTensor& w, const HostTensor& importance,
                         AffineParams p) {
  OpCheck check;
  check.name = str("fit_affine ", scale_dtype, " ", w.shape, " importance ", importance.shape, " bits ",
                   p.bits, " group ", p.group_size);
  check.inputs = {w};
  const std::int64_t cols = w.shape.cols();
  Doubles h = importance.values;
  if (h.empty()) h.assign(static_cast<std::size_t>(cols), 1.0);
  if (!importance.values.empty()) check.inputs.push_back(importance);
  check.differentiable.assign(check.inputs.size(), false);
  check.op = [=](const std::vector<Var>& v) { return errors_of_fit(v, p, scale_dtype, h); };
  check.forward = [=](const auto& v) { return errors_of_oracle(v[0], h, cols, p, scale_dtype); };
  check.forward_bound = {kShare / epsilon(DType::f32), 1e-30};
  return check;
}

std::vector<OpCheck> fit_affine_checks(const Device&, DType dtype) {
  const HostTensor none{DType::f32, {0}, {}};
  std::vector<OpCheck> checks = {
      fit_affine_check(dtype, testing::random_tensor(DType::f32, {0, 64}, 1), none, {4, 32})};
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    checks.push_back(
        fit_affine_check(dtype, testing::random_tensor(DType::f32, {3, 96}, 1), none, {bits, 32}));
    checks.push_back(
        fit_affine_check(dtype, heavy_tailed_tensor({5, 128}, 2), random_importance({128}, 3), {bits, 64}));
    checks.push_back(fit_affine_check(dtype, testing::random_tensor(DType::f32, {2, 3, 256}, 4, 0.02),
                                      random_importance({2, 256}, 5), {bits, 128}));
  }
  return checks;
}

MIXTAPE_OP_CHECKS(fit_affine, testing::kValueDtypes, fit_affine_checks)

}  // namespace mixtape
