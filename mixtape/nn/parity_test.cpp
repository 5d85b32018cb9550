// Logits, loss and every parameter's gradient against Hugging Face transformers, on random small models.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "mixtape/io/safetensors.h"
#include "mixtape/nn/causal_lm.h"
#include "mixtape/ops/cross_entropy/cross_entropy.h"
#include "mixtape/ops/kl_div/kl_div.h"
#include "mixtape/ops/layout/layout.h"
#include "mixtape/ops/reduce/reduce.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::relative_distance;

const std::string kData = "tests/data/parity/";

std::vector<double> values_of(const TensorView& view) {
  std::vector<double> values(static_cast<std::size_t>(view.shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    float v = 0.0f;
    std::memcpy(&v, view.bytes.data() + 4 * i, 4);
    values[i] = static_cast<double>(v);
  }
  return values;
}

std::vector<double> values_of(const Buffer& b) {
  const std::vector<float> v = b.to_vector<float>();
  return {v.begin(), v.end()};
}

// input_ids [2,17] without the last column, and the column after each.
struct Ids {
  Buffer all, inputs, targets;
};

Ids read_ids(const TensorView& view, const Device& device) {
  const std::int64_t rows = view.shape[0], cols = view.shape[1];
  std::vector<std::uint32_t> all, targets;
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    std::int64_t id = 0;
    std::memcpy(&id, view.bytes.data() + 8 * i, 8);
    all.push_back(static_cast<std::uint32_t>(id));
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 1; c < cols; ++c) targets.push_back(all[static_cast<std::size_t>(r * cols + c)]);
  }
  return {Buffer::from(device, view.shape, all), Buffer(),
          Buffer::from(device, {rows * (cols - 1)}, targets)};
}

// The gradient that the file holds for one of our tensors: experts are stored one by one.
std::vector<double> expected_gradient(const SafetensorsFile& file, const std::string& prefix,
                                      const std::string& name) {
  const std::string stacked = ".mlp.switch_mlp.";
  const std::size_t at = name.find(stacked);
  if (at == std::string::npos) return values_of(file.at(prefix + name));
  std::vector<double> all;
  for (int e = 0;; ++e) {
    const std::string one =
        str(prefix, name.substr(0, at), ".mlp.experts.", e, ".", name.substr(at + stacked.size()));
    if (!file.has(one)) return all;
    const std::vector<double> values = values_of(file.at(one));
    all.insert(all.end(), values.begin(), values.end());
  }
}

// Model and device.
class Parity : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(Parity, LogitsLossAndGradients) {
  const auto& [name, device_name] = GetParam();
  const Device device = Device::open(device_name);
  const auto source = open_model(kData + name);
  const ModelConfig config = source->config();
  const Parameters parameters = load_parameters(*source, config, DType::f32, device);
  const SafetensorsFile expected = SafetensorsFile::open(kData + name + "/expected.safetensors");
  const Ids ids = read_ids(expected.at("input_ids"), device);
  Tape tape(device);
  TapeWeights weights(tape, parameters, Trainable::everything);
  const CausalLm model(config, weights, DType::f32);

  const Var logits = model.logits(model.hidden(ids.all));
  const std::int64_t vocab = config.vocab_size, positions = ids.targets.numel();
  const Var next = reshape(slice(logits, 1, 0, ids.all.shape()[1] - 1), {positions, vocab});
  const Var loss = mean(cross_entropy(next, ids.targets));
  tape.backward(loss);
  tape.encoder().commit_and_wait();

  // Measured distances are of use to bench/peers/models.py.
  const double logits_off = relative_distance(values_of(logits.value()), values_of(expected.at("logits")));
  const double loss_off = std::abs(values_of(loss.value())[0] - values_of(expected.at("loss"))[0]);
  double worst_gradient_off = 0.0;
  EXPECT_LE(logits_off, 1e-4);
  EXPECT_LE(loss_off, 1e-5);
  EXPECT_EQ(weights.trainable().size(), parameters.dense.size());
  for (const NamedVar& v : weights.trainable()) {
    const std::vector<double> wanted = expected_gradient(expected, "grad.", v.name);
    const std::vector<double> found =
        v.var.grad() ? values_of(v.var.grad()) : std::vector<double>(wanted.size(), 0.0);
    const double off = relative_distance(found, wanted);
    worst_gradient_off = std::max(worst_gradient_off, off);
    EXPECT_LE(off, 1e-3) << v.name;
  }
  RecordProperty("logits", str(logits_off));
  RecordProperty("loss", str(loss_off));
  RecordProperty("gradient", str(worst_gradient_off));
}

// Every folder with a model, but those of the distillation.
std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kData)) {
    if (std::filesystem::exists(entry.path() / "model.safetensors"))
      names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// A model type without data would be a type without a proof.
TEST(ParityData, HoldsEveryArchitecture) {
  std::set<std::string> found;
  for (const std::string& name : model_names())
    found.insert(open_model(kData + name)->config().architecture->model_type);
  for (const Architecture* architecture : architectures())
    EXPECT_TRUE(found.contains(architecture->model_type)) << architecture->model_type;
}

INSTANTIATE_TEST_SUITE_P(Models, Parity,
                         ::testing::Combine(::testing::ValuesIn(model_names()),
                                            ::testing::ValuesIn(testing::model_device_names())));

}  // namespace
}  // namespace mixtape
