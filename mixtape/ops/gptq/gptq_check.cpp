#include "mixtape/ops/gptq/gptq_check.h"

#include "mixtape/ops/gptq/gptq_oracle.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::HostTensor;
using testing::OpCheck;

// L = I + what is random below the diagonal, small enough that the rows of a wide L stay alike.
HostTensor random_factor(std::int64_t batch, std::int64_t size, std::uint64_t seed) {
  const double spread = 1.0 / std::sqrt(static_cast<double>(size));
  HostTensor l = testing::random_tensor(DType::f32, {batch, size, size}, seed, spread);
  for (std::int64_t i = 0; i < batch * size; ++i) {
    l.values[i * size + i % size] = 1.0 + 0.25 * static_cast<double>(i % 7);
    for (std::int64_t j = i % size + 1; j < size; ++j) l.values[i * size + j] = 0.0;
  }
  return l;
}

std::vector<HostTensor> inputs_of(const GptqCase& c) {
  const Shape groups = scales_shape(c.w, c.format);
  const std::int64_t size = c.w.cols();
  HostTensor factor = random_factor(c.is_shared ? 1 : c.w.rows() / c.w[c.w.rank() - 2], size, 2);
  factor.shape = c.is_shared ? Shape{size, size} : c.w.with(c.w.rank() - 2, size);
  // A range of 4 around a mean of 0: standard normals pass it now and then, on both sides.
  HostTensor scales = testing::random_tensor(c.scale_dtype, groups, 3, 0.1);
  for (std::size_t i = 0; i < scales.values.size(); ++i)
    scales.values[i] = (i % 3 == 0 ? -4.0 : 4.0) / c.format.max_code() * (1.0 + scales.values[i]);
  HostTensor biases = testing::random_tensor(c.scale_dtype, groups, 4, 0.1);
  for (std::size_t i = 0; i < biases.values.size(); ++i)
    biases.values[i] += -0.5 * c.format.max_code() * scales.values[i];
  return {testing::random_tensor(DType::f32, c.w, 1), factor,
          testing::make_tensor(c.scale_dtype, groups, scales.values),
          testing::make_tensor(c.scale_dtype, groups, biases.values)};
}

OpCheck gptq_check(const GptqCase& c) {
  OpCheck check;
  check.name = str("gptq ", c.w, c.is_shared ? " shared" : "", " bits ", c.format.bits, " group ",
                   c.format.group_size, " ", c.scale_dtype);
  check.inputs = inputs_of(c);
  check.differentiable = {false, false, false, false};
  check.op = [c](const std::vector<Var>& v) {
    Tape& tape = v[0].tape();
    const Buffer codes = tape.alloc(DType::u32, packed_shape(c.w, c.format));
    gptq_forward(tape.encoder(), v[0].value(), v[1].value(), {codes, v[2].value(), v[3].value(), c.format});
    return tape.constant(codes);
  };
  // To the bit: on these inputs no t lies within the accuracy of the middle between two codes.
  check.forward = [c](const auto& x) {
    return oracle::pack_words(
        oracle::gptq_codes(x[0], x[1], x[2], x[3], c.w.cols(), c.format.group_size, c.format.bits),
        c.format.bits);
  };
  return check;
}

std::vector<OpCheck> gptq_checks(const Device&, DType scale_dtype) {
  std::vector<OpCheck> checks = {gptq_check({{2, 0, 64}, true, {4, 32}, scale_dtype})};
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    checks.push_back(gptq_check({{3, 32}, true, {bits, 32}, scale_dtype}));
    checks.push_back(gptq_check({{3, 96}, true, {bits, 16}, scale_dtype}));
    checks.push_back(gptq_check({{2, 5, 192}, false, {bits, 64}, scale_dtype}));
  }
  checks.push_back(gptq_check({{3, 2, 256}, true, {4, 128}, scale_dtype}));
  checks.push_back(gptq_check({{70, 160}, true, {3, 32}, scale_dtype}));
  return checks;
}

MIXTAPE_OP_CHECKS(gptq, testing::kValueDtypes, gptq_checks)

}  // namespace mixtape
