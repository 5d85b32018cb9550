#include "mixtape/ops/quantize/quantize_check.h"

#include "mixtape/ops/quantize/quantize_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

OpCheck dequantize_affine_check(DType dtype, DType scale_dtype, const Shape& w, AffineParams p) {
  OpCheck check;
  check.name =
      str("dequantize_affine ", dtype, " ", scale_dtype, " ", w, " bits ", p.bits, " group ", p.group_size);
  const std::int64_t cols = w.cols();
  check.inputs = {random_codes(packed_shape(w, p), 1),
                  testing::random_tensor(scale_dtype, scales_shape(w, p), 2, 0.3),
                  testing::random_tensor(scale_dtype, scales_shape(w, p), 3, 2.0)};
  check.op = [=](const std::vector<Var>& v) {
    return dequantize_affine({v[0].value(), v[1], v[2], p}, dtype);
  };
  check.forward = [=](const auto& v) { return oracle::dequantize(v[0], v[1], v[2], p, cols); };
  check.complex_forward = [=](const auto& v) { return oracle::dequantize(v[0], v[1], v[2], p, cols); };
  check.backward = [=](const auto& v, const Doubles& dy) -> std::vector<Doubles> {
    std::vector<Doubles> grads = oracle::dequantize_backward(v[0], dy, p, cols);
    return {{}, grads[0], grads[1]};
  };
  set_decoding_bounds(check, p);
  check.prove_oracle = w.numel() <= 300;
  return check;
}

std::vector<OpCheck> dequantize_affine_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks = {dequantize_affine_check(dtype, dtype, {0, 64}, {4, 32})};
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    checks.push_back(dequantize_affine_check(dtype, dtype, {3, 32}, {bits, 32}));
    checks.push_back(dequantize_affine_check(dtype, bits % 2 == 0 ? DType::f32 : dtype, {3, 96}, {bits, 16}));
    checks.push_back(dequantize_affine_check(dtype, dtype, {2, 3, 128}, {bits, 64}));
    checks.push_back(dequantize_affine_check(dtype, DType::f32, {5, 256}, {bits, 128}));
  }
  for (const DType scales : testing::kValueDtypes)
    checks.push_back(dequantize_affine_check(dtype, scales, {3, 96}, {4, 32}));
  return checks;
}

MIXTAPE_OP_CHECKS(dequantize_affine, testing::kValueDtypes, dequantize_affine_checks)

}  // namespace mixtape
