#include "mixtape/ops/quantized_matmul/quantized_matmul_check.h"

#include "mixtape/ops/quantized_matmul/quantized_matmul.h"
#include "mixtape/ops/quantized_matmul/quantized_matmul_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::HostTensor;
using testing::OpCheck;

std::vector<HostTensor> inputs_of(const QuantizedMatmulCase& c) {
  const auto shape = [&](std::int64_t cols) {
    const auto experts = static_cast<std::int64_t>(c.sizes.sizes.size());
    return c.is_grouped ? Shape{experts, c.sizes.n, cols} : Shape{c.sizes.n, cols};
  };
  const std::int64_t groups = c.format.groups(c.sizes.k);
  return {testing::random_tensor(c.x, {c.sizes.rows(), c.sizes.k}, 1),
          testing::random_indices(shape(c.format.packed_cols(c.sizes.k)), 2, std::int64_t{1} << 32),
          testing::random_tensor(c.scales, shape(groups), 3, 1.0 / c.format.max_code()),
          testing::random_tensor(c.scales, shape(groups), 4)};
}

double weight_rounding(const Device& device, const QuantizedMatmulCase& c) {
  const DeviceCaps caps = device.caps();
  const bool rounds =
      (c.x == DType::bf16 && caps.rounds_decoded_bf16) || (c.x == DType::f16 && caps.rounds_decoded_f16);
  return rounds ? epsilon(c.x) / 2 : 0.0;
}

namespace {

OpCheck quantized_check(const Device& device, const QuantizedMatmulCase& c) {
  OpCheck check;
  check.name = str("quantized_matmul ", c.x, "->", c.y, ", ", c.scales, " scales, ", c.format.bits,
                   " bits, group ", c.format.group_size, ", n ", c.sizes.n, ", rows ", c.sizes.rows());
  check.inputs = inputs_of(c);
  check.op = [c, offsets = upload_offsets(device, c.sizes.sizes)](const std::vector<Var>& v) {
    const QuantizedVar w{v[1].value(), v[2], v[3], c.format};
    return c.is_grouped ? grouped_quantized_matmul(v[0], w, offsets, c.y) : quantized_matmul(v[0], w, c.y);
  };
  check.forward = [c](const auto& x) {
    return oracle::quantized_matmul(c.sizes, c.format, x[0], x[1], x[2], x[3]);
  };
  check.complex_forward = [c](const auto& x) {
    return oracle::quantized_matmul(c.sizes, c.format, x[0], x[1], x[2], x[3]);
  };
  check.backward = [c](const auto& x, const Doubles& dy) {
    return oracle::quantized_matmul_backward(c.sizes, c.format, x[0], x[1], x[2], x[3], dy);
  };
  check.prove_oracle = c.sizes.rows() * c.sizes.n * c.sizes.k < 1500;
  return check;
}

}  // namespace

// The bounds of the header. Products of two values of about standard normal size are below 2 in the mean
// here, below 4 where n is as small as 3; a code adds its largest value.
std::vector<OpCheck> quantized_matmul_case(const Device& device, const QuantizedMatmulCase& c) {
  const double u = 0x1p-24;
  const auto k = static_cast<double>(c.sizes.k), n = static_cast<double>(c.sizes.n);
  const auto rows = static_cast<double>(c.sizes.rows()), group = static_cast<double>(c.format.group_size);
  const double rounded = weight_rounding(device, c);
  std::vector<OpCheck> checks;
  OpCheck check = quantized_check(device, c);
  const std::string name = check.name;
  check.forward_bound = {1.0, ((k + 2.0) * u + rounded) * 2.0 * k};
  check.name = name + ", x";
  check.differentiable = {true, false, false, false};
  check.backward_bound = {1.0, (n + 2.0) * u * 2.0 * n + rounded * 4.0 * n};
  checks.push_back(check);
  const double sum = 2.0 * rows * group * u * (rows + group + 4.0);
  check.name = name + ", scales";
  check.differentiable = {false, false, true, false};
  check.backward_bound = {1.0, sum * c.format.max_code()};
  checks.push_back(check);
  check.name = name + ", biases";
  check.differentiable = {false, false, false, true};
  check.backward_bound = {1.0, sum};
  checks.push_back(check);
  return checks;
}

std::vector<OpCheck> quantized_matmul_checks(const Device& device, DType dtype) {
  std::vector<OpCheck> checks;
  const auto add = [&](const QuantizedMatmulCase& c) {
    for (const OpCheck& check : quantized_matmul_case(device, c)) checks.push_back(check);
  };
  for (const std::int32_t bits : {2, 3, 4, 5, 6, 8}) {
    for (const std::int32_t group : {16, 32, 64, 128}) {
      if (dtype != DType::f32 && group != 64) continue;
      add({{3, 2 * group, {5}}, {bits, group}, dtype, dtype, dtype});
      add({{3, 2 * group, {1}}, {bits, group}, dtype, dtype, dtype});  // few rows: the CPU's other path
    }
  }
  add({{2, 32, {0}}, {4, 32}, dtype, dtype, dtype});
  for (const std::int64_t rows : {2, 3, 4}) add({{70, 96, {rows}}, {5, 32}, dtype, dtype, dtype});
  add({{2, 32, {3}}, {4, 32}, dtype, dtype, dtype});
  for (const DType scales : testing::kValueDtypes)
    add({{37, 96, {19}}, {4, 32}, dtype, scales, scales == DType::f32 ? DType::f32 : dtype});
  for (const std::int64_t rows : {0, 1, 3, 19}) {
    for (const DType out : {dtype, DType::f32}) {
      const QuantizedMatmulCase c{{37, 96, {rows}}, {4, 32}, dtype, dtype, out};
      const HostTensor addend = testing::random_tensor(out, {rows, 37}, 9);
      for (const OpCheck& product : quantized_matmul_case(device, c))
        checks.push_back(testing::with_addend(product, addend, [c](const std::vector<Var>& v) {
          return quantized_matmul(v[0], {v[1].value(), v[2], v[3], c.format}, c.y, v[4]);
        }));
    }
  }
  return checks;
}

std::vector<OpCheck> grouped_quantized_matmul_checks(const Device& device, DType dtype) {
  std::vector<OpCheck> checks;
  const auto add = [&](const QuantizedMatmulCase& c) {
    for (const OpCheck& check : quantized_matmul_case(device, c)) checks.push_back(check);
  };
  const oracle::GroupedMatmulCase sizes{5, 64, {0, 4, 1, 0, 9}};
  add({{3, 32, {0, 0}}, {4, 32}, dtype, dtype, dtype, true});
  add({{3, 32, {2, 0, 1}}, {4, 32}, dtype, dtype, dtype, true});
  add({sizes, {3, 64}, dtype, dtype, dtype, true});
  add({sizes, {5, 32}, dtype, DType::f32, DType::f32, true});
  add({sizes, {6, 16}, dtype, DType::f32, dtype, true});
  add({{200, 32, {3, 0}}, {8, 32}, dtype, DType::f32, dtype, true});
  return checks;
}

MIXTAPE_OP_CHECKS(quantized_matmul, testing::kValueDtypes, quantized_matmul_checks)
MIXTAPE_OP_CHECKS(grouped_quantized_matmul, testing::kValueDtypes, grouped_quantized_matmul_checks)

}  // namespace mixtape
