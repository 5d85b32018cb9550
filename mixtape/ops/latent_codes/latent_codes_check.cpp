#include "mixtape/ops/latent_codes/latent_codes_check.h"

#include "mixtape/ops/latent_codes/latent_codes_oracle.h"
#include "mixtape/ops/quantize/quantize_check.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::HostTensor;
using testing::OpCheck;

HostTensor random_latent(const Shape& w, std::uint64_t seed, AffineParams p) {
  HostTensor u = testing::random_tensor(DType::f32, w, seed, 0.4 * p.max_code());
  for (double& v : u.values) v += 0.5 * p.max_code();
  return testing::make_tensor(DType::f32, w, u.values);
}

OpCheck latent_codes_check(DType dtype, const Shape& w, AffineParams p) {
  OpCheck check;
  check.name = str("latent_codes ", dtype, " ", w, " bits ", p.bits, " group ", p.group_size);
  check.inputs = {random_latent(w, 1, p), testing::random_tensor(DType::f32, scales_shape(w, p), 2, 0.3),
                  testing::random_tensor(DType::f32, scales_shape(w, p), 3, 2.0)};
  check.op = [=](const std::vector<Var>& v) { return latent_codes(v[0], v[1], v[2], p, dtype); };
  check.forward = [=](const auto& v) { return oracle::latent_codes(v[0], v[1], v[2], p); };
  check.complex_forward = [=](const auto& v) { return oracle::latent_codes(v[0], v[1], v[2], p); };
  check.backward = [=](const auto& v, const Doubles& dw) {
    return oracle::latent_codes_backward(v[0], v[1], dw, p);
  };
  set_decoding_bounds(check, p);
  check.prove_oracle = w.numel() <= 300;
  return check;
}

std::vector<OpCheck> latent_codes_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks = {latent_codes_check(dtype, {0, 32}, {4, 32})};
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    checks.push_back(latent_codes_check(dtype, {3, 32}, {bits, 32}));
    checks.push_back(latent_codes_check(dtype, {3, 96}, {bits, 16}));
    checks.push_back(latent_codes_check(dtype, {2, 3, 128}, {bits, 64}));
    checks.push_back(latent_codes_check(dtype, {5, 256}, {bits, 128}));
  }
  return checks;
}

MIXTAPE_OP_CHECKS(latent_codes, testing::kValueDtypes, latent_codes_checks)

}  // namespace mixtape
