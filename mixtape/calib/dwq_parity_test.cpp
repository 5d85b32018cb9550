// Codes, distillation losses, and the gradient of every scale and bias, against an independent PyTorch
// program.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "mixtape/calib/fit_students.h"
#include "mixtape/calib/loss_signal.h"
#include "mixtape/calib/plain_rounding.h"
#include "mixtape/calib/student.h"
#include "mixtape/io/safetensors.h"
#include "mixtape/nn/causal_lm.h"
#include "mixtape/ops/layout/layout.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::relative_distance;

const std::string kData = "tests/data/parity/";

std::vector<float> floats(const TensorView& view) {
  std::vector<float> values(static_cast<std::size_t>(view.shape.numel()));
  std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  return values;
}

// Calls fn with the checkpoint's name of each part of a stacked tensor, or with the name itself, and the
// part's number.
template <class Fn>
void for_each_part(const std::string& path, std::int64_t experts, const Fn& fn) {
  const std::string stacked = ".mlp.switch_mlp.";
  const std::size_t at = path.find(stacked);
  if (at == std::string::npos) return fn(path, 0, 1);
  for (std::int64_t e = 0; e < experts; ++e)
    fn(str(path.substr(0, at), ".mlp.experts.", e, ".", path.substr(at + stacked.size())), e, experts);
}

// In each sparse layer; 0 where there is none.
std::int64_t experts_of(const ModelConfig& config) {
  for (const LayerSpec& layer : config.layers) {
    if (const auto* sparse = std::get_if<SparseMlpSpec>(&layer.mlp)) return sparse->experts;
  }
  return 0;
}

// Model and device.
class DwqParity : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  DwqParity()
      : source_(open_model(kData + std::get<0>(GetParam()))),
        config_(source_->config()),
        expected_(SafetensorsFile::open(kData + "dwq_" + std::get<0>(GetParam()) + "/expected.safetensors")),
        tape_(Device::open(std::get<1>(GetParam()))),
        teacher_(*source_, DType::f32, false, tape_),
        student_(fit_student(teacher_, plan_quantization(*source_, {.params = format()}), plain_rounding())
                     .parameters) {}

  AffineParams format() const {
    const auto& metadata = expected_.metadata();
    return {std::stoi(metadata.at("bits")), std::stoi(metadata.at("group_size"))};
  }

  // Rows of ids whose last position has no target.
  Batch batch() const {
    const TensorView& view = expected_.at("input_ids");
    const std::int64_t rows = view.shape[0], cols = view.shape[1];
    std::vector<std::uint32_t> ids;
    Batch batch;
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      std::int64_t id = 0;
      std::memcpy(&id, view.bytes.data() + 8 * i, 8);
      ids.push_back(static_cast<std::uint32_t>(id));
      batch.weights.push_back(i % cols == cols - 1 ? 0.0f : 1.0f);
      batch.total_weight += batch.weights.back() > 0.0f ? 1.0 : 0.0;
    }
    batch.ids = Buffer::from(tape_.device(), {rows, cols}, ids);
    return batch;
  }

  // Mean loss; gradients are left in `weights`.
  double loss_and_gradients(TapeWeights& weights, const KlOptions& options) {
    const CausalLm student(config_, weights, DType::f32);
    LiveTeacher signal(teacher_.model(), tape_, options);
    const Batch b = batch();
    const std::vector<std::size_t> numbers = {0, 1};
    signal.load(b, numbers);
    signal.start();
    const Var hidden = student.hidden(b.ids);
    logits_ = reshape(student.logits(hidden), {b.ids.numel(), config_.vocab_size});
    std::vector<float> shares = b.weights;
    for (float& w : shares) w = static_cast<float>(w / b.total_weight);
    const Buffer dlogits = tape_.alloc(logits_.dtype(), logits_.shape());
    const Buffer losses = signal.losses(tape_.encoder(), logits_.value(), 0, b.ids.numel(),
                                        {Buffer::from(tape_.device(), {b.ids.numel()}, shares), dlogits});
    tape_.backward(logits_, dlogits);
    tape_.encoder().commit_and_wait();
    const std::vector<float> values = losses.to_vector<float>();
    double sum = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) sum += static_cast<double>(values[i] * b.weights[i]);
    return sum / b.total_weight;
  }

  void expect_gradients(const TapeWeights& weights, const std::string& prefix) {
    EXPECT_EQ(weights.trainable().size(), 2 * student_.quantized.size());
    for (const NamedVar& v : weights.trainable()) {
      const auto dot = v.name.rfind('.');
      const std::vector<float> all = v.var.grad().to_vector<float>();
      for_each_part(
          v.name.substr(0, dot), experts_, [&](const std::string& path, std::int64_t e, std::int64_t n) {
            const auto size = static_cast<std::ptrdiff_t>(all.size()) / n;
            const std::vector<float> part(all.begin() + e * size, all.begin() + (e + 1) * size);
            EXPECT_LE(relative_distance(part, floats(expected_.at(prefix + path + v.name.substr(dot)))), 1e-3)
                << path;
          });
    }
  }

  double expected_loss(const std::string& name) const {
    return static_cast<double>(floats(expected_.at(name))[0]);
  }

  std::unique_ptr<ModelSource> source_;
  ModelConfig config_;
  std::int64_t experts_ = experts_of(config_);
  SafetensorsFile expected_;
  Tape tape_;
  Teacher teacher_;
  Parameters student_;
  Var logits_;
};

TEST_P(DwqParity, CodesScalesAndBiasesAreEqual) {
  std::size_t parts = 0;
  for (const auto& [module, q] : student_.quantized) {
    const QuantizedWeight& matrix = q;
    for_each_part(module, experts_, [&](const std::string& path, std::int64_t e, std::int64_t n) {
      ++parts;
      for (const auto& [suffix, buffer] :
           {std::pair(".weight", matrix.codes), std::pair(".scales", matrix.scales),
            std::pair(".biases", matrix.biases)}) {
        const TensorView& wanted = expected_.at(path + suffix);
        std::vector<std::byte> bytes(buffer.bytes());
        buffer.read_bytes(bytes.data());
        const std::size_t size = bytes.size() / static_cast<std::size_t>(n);
        ASSERT_EQ(size, wanted.bytes.size()) << path << suffix;
        EXPECT_EQ(std::memcmp(bytes.data() + static_cast<std::size_t>(e) * size, wanted.bytes.data(), size),
                  0)
            << path << suffix;
      }
    });
  }
  std::size_t stored = 0;
  for (const auto& [name, view] : expected_.tensors())
    stored += name.ends_with(".biases") && !name.starts_with("grad");
  EXPECT_EQ(parts, stored);
}

TEST_P(DwqParity, FullVocabulary) {
  TapeWeights weights(tape_, student_, Trainable::quantization);
  const double loss = loss_and_gradients(weights, {.temperature = 2.0f});
  EXPECT_NEAR(loss, expected_loss("kl_full"), 1e-4 * expected_loss("kl_full"));
  EXPECT_LE(relative_distance(logits_.value().to_vector<float>(), floats(expected_.at("student_logits"))),
            1e-4);
  expect_gradients(weights, "grad_full.");
}

TEST_P(DwqParity, Top64Renormalised) {
  TapeWeights weights(tape_, student_, Trainable::quantization);
  const double loss = loss_and_gradients(weights, {.temperature = 2.0f, .top_k = 64});
  EXPECT_NEAR(loss, expected_loss("kl_top64"), 1e-4 * expected_loss("kl_top64"));
}

TEST_P(DwqParity, Top64WithRest) {
  TapeWeights weights(tape_, student_, Trainable::quantization);
  const double loss = loss_and_gradients(weights, {.temperature = 2.0f, .top_k = 64, .rest_bucket = true});
  EXPECT_NEAR(loss, expected_loss("kl_top64_rest"), 1e-4 * expected_loss("kl_top64_rest"));
  expect_gradients(weights, "grad_rest.");
}

INSTANTIATE_TEST_SUITE_P(Models, DwqParity,
                         ::testing::Combine(::testing::Values("llama", "qwen3", "qwen3_moe"),
                                            ::testing::ValuesIn(testing::model_device_names())));

}  // namespace
}  // namespace mixtape
