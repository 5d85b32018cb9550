#include "mixtape/nn/tape_weights.h"

#include <gtest/gtest.h>

#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/quantized_matmul/quantized_matmul.h"
#include "mixtape/quant/weight_codec.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

// A matrix in blocks, and two inputs of it.
struct BlockMatrix {
  explicit BlockMatrix(const Device& device)
      : weight(quantize_matrix("m", upload(device, testing::random_tensor(DType::f32, {4, 512}, 1)),
                               BlockType::q4_k, Rounding::gpu, DType::f32)) {
    for (const std::uint64_t seed : {2u, 3u})
      inputs.push_back(upload(device, testing::random_tensor(DType::f32, {3, 512}, seed)));
    dy = upload(device, testing::random_tensor(DType::f32, {3, 4}, 4));
    parameters.quantized.emplace("m", weight);
  }
  QuantizedWeight weight;
  std::vector<Buffer> inputs;
  Buffer dy;
  Parameters parameters;
};

std::vector<double> gradient(const Var& v) { return testing::download(v.grad()).values; }

// As a training step of a tied embedding does: several passes back through one matrix.
TEST(TapeWeights, GradientsOfSeveralPassesReachThePartsOnce) {
  for (const Device& device : testing::test_devices()) {
    const BlockMatrix m(device);
    Tape tape(device);
    TapeWeights weights(tape, m.parameters, Trainable::quantization);
    const Matrix matrix = weights.matrix("m");
    weights.renew();
    for (const Buffer& x : m.inputs) tape.backward(linear(tape.constant(x), matrix), m.dy);
    for (const NamedVar& part : weights.trainable()) EXPECT_FALSE(part.var.grad()) << part.name;
    weights.pass_gradients();

    // The same as one graph.
    std::vector<Var> parts;
    for (const NamedVar& part : weights.trainable()) parts.push_back(tape.parameter(part.var.value()));
    const QuantizedVar q = codec_of(m.weight).on_tape(m.weight, parts);
    const Var first = quantized_matmul(tape.constant(m.inputs[0]), q),
              second = quantized_matmul(tape.constant(m.inputs[1]), q);
    tape.backward(first + second, m.dy);
    tape.encoder().commit_and_wait();
    ASSERT_EQ(parts.size(), 4u);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::vector<double> found = gradient(weights.trainable()[i].var), wanted = gradient(parts[i]);
      for (std::size_t k = 0; k < wanted.size(); ++k) EXPECT_NEAR(found[k], wanted[k], 1e-4) << i << " " << k;
    }
  }
}

TEST(TapeWeights, ProductsFollowThePartsFromStepToStep) {
  for (const Device& device : testing::test_devices()) {
    const BlockMatrix m(device);
    Tape tape(device);
    TapeWeights weights(tape, m.parameters, Trainable::quantization);
    const Matrix matrix = weights.matrix("m");
    const auto product = [&] {
      weights.renew();
      const Var y = linear(tape.constant(m.inputs[0]), matrix);
      tape.encoder().commit_and_wait();
      return testing::download(y.value()).values;
    };
    const std::vector<double> before = product();
    for (const NamedVar& part : weights.trainable()) {
      if (!part.name.ends_with(".scales") && !part.name.ends_with(".biases")) continue;
      std::vector<float> twice = part.var.value().to_vector<float>();
      for (float& v : twice) v *= 2.0f;
      tape.encoder().copy(Buffer::from(device, part.var.shape(), twice), part.var.value());
    }
    const std::vector<double> after = product();
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i], 2.0 * before[i], 1e-4);
  }
}

}  // namespace
}  // namespace mixtape
