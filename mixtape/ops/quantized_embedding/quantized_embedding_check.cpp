#include "mixtape/ops/quantized_embedding/quantized_embedding_check.h"

#include <algorithm>

#include "mixtape/ops/quantize/quantize_check.h"
#include "mixtape/ops/quantized_embedding/quantized_embedding.h"
#include "mixtape/ops/quantized_embedding/quantized_embedding_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::HostTensor;
using testing::OpCheck;

OpCheck quantized_embedding_check(const Device& device, const QuantizedEmbeddingCase& c) {
  const Shape groups{c.rows, c.params.groups(c.hidden)};
  OpCheck check;
  check.name = str("quantized_embedding ", c.dtype, " ", c.scale_dtype, " ", c.rows, "x", c.hidden, " bits ",
                   c.params.bits, " group ", c.params.group_size, " ids ", c.ids.dtype, c.ids.shape);
  check.inputs = {random_codes({c.rows, c.params.packed_cols(c.hidden)}, 1),
                  testing::random_tensor(c.scale_dtype, groups, 2, 0.3),
                  testing::random_tensor(c.scale_dtype, groups, 3, 2.0)};
  check.op = [c, ids = upload(device, c.ids)](const std::vector<Var>& v) {
    return quantized_embedding({v[0].value(), v[1], v[2], c.params}, ids, c.dtype);
  };
  const auto forward = [c](const auto& v) {
    return oracle::quantized_embedding(v[0], v[1], v[2], c.ids.values, c.params, c.hidden);
  };
  check.forward = forward;
  check.complex_forward = forward;
  check.backward = [c](const auto& v, const Doubles& dy) -> std::vector<Doubles> {
    std::vector<Doubles> grads =
        oracle::quantized_embedding_backward(v[0], c.ids.values, dy, c.params, c.rows, c.hidden);
    return {{}, grads[0], grads[1]};
  };
  const double group = c.params.group_size, n = static_cast<double>(c.ids.values.size());
  check.forward_bound = {0.51, 1e-38};
  // |dy| is 0.8 on average, codes half the largest.
  check.backward_bound = {
      0.51, (group / 4 + 4 + std::min(n, 128.0) + n / 128) * 0x1p-24 * n * group * c.params.max_code()};
  check.prove_oracle = c.rows * c.hidden <= 300;
  return check;
}

std::vector<OpCheck> quantized_embedding_checks(const Device& device, DType dtype) {
  std::vector<OpCheck> checks;
  const HostTensor ids = testing::random_indices({2, 4}, 3, 5);
  const HostTensor signed_ids = testing::random_indices({6}, 4, 5, DType::i32);
  const HostTensor no_ids = testing::random_indices({0, 4}, 3, 5);
  checks.push_back(quantized_embedding_check(device, {dtype, dtype, 5, 32, {4, 32}, no_ids}));
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    checks.push_back(quantized_embedding_check(device, {dtype, dtype, 5, 32, {bits, 32}, ids}));
    checks.push_back(quantized_embedding_check(device, {dtype, DType::f32, 5, 96, {bits, 16}, ids}));
    checks.push_back(quantized_embedding_check(device, {dtype, DType::f32, 5, 192, {bits, 64}, ids}));
  }
  for (const DType scales : testing::kValueDtypes)
    checks.push_back(quantized_embedding_check(device, {dtype, scales, 5, 96, {3, 32}, signed_ids}));
  checks.push_back(quantized_embedding_check(device, {dtype, DType::f32, 5, 256, {4, 128}, signed_ids}));
  return checks;
}

MIXTAPE_OP_CHECKS(quantized_embedding, testing::kValueDtypes, quantized_embedding_checks)

}  // namespace mixtape
