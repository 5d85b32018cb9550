// A training step of tiny models: which parameters get gradients, and what happens to those that get none.
#include "mixtape/nn/causal_lm.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "mixtape/io/tensor_list.h"
#include "mixtape/ops/adam/adam.h"
#include "mixtape/ops/cross_entropy/cross_entropy.h"
#include "mixtape/ops/reduce/reduce.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/tiny_model_json.h"

namespace mixtape {
namespace {

using testing::HostTensor;
using HostModel = std::map<std::string, HostTensor>;

ModelConfig tiny(const std::string& model_type) {
  return ModelConfig::parse(nlohmann::json::parse(testing::tiny_model_json(model_type)), "config");
}

HostModel random_model(const ModelConfig& config) {
  HostModel model;
  std::uint64_t seed = 1;
  for (const ModelTensor& t : tensor_list(config)) {
    model.emplace(t.name, testing::random_tensor(DType::f32, t.shape, seed++, 0.5));
  }
  return model;
}

struct Step {
  HostModel gradients;  // of every parameter that got one
  HostModel after;      // parameters after one step of Adam
};

// Forward over two rows of five tokens, backward, Adam.
Step training_step(const Device& device, const ModelConfig& config, const HostModel& model) {
  Parameters parameters;
  for (const auto& [name, tensor] : model) parameters.dense.emplace(name, upload(device, tensor));
  Tape tape(device);
  TapeWeights weights(tape, parameters, Trainable::everything);
  const CausalLm lm(config, weights, DType::f32);
  const auto ids = [&](std::uint64_t seed) {
    return upload(device, testing::random_indices({2, 5}, seed, config.vocab_size));
  };
  tape.backward(mean(cross_entropy(lm.logits(lm.hidden(ids(1))), ids(2))));
  Step step;
  for (const NamedVar& v : weights.trainable()) {
    if (!v.var.grad()) continue;
    tape.encoder().commit_and_wait();
    step.gradients.emplace(v.name, testing::download(v.var.grad()));
    const Buffer p = v.var.value();
    adam_step(tape.encoder(),
              {{p, v.var.grad(), device.alloc(DType::f32, p.shape()), device.alloc(DType::f32, p.shape())}},
              {});
  }
  tape.encoder().commit_and_wait();
  for (const auto& [name, buffer] : parameters.dense) step.after.emplace(name, testing::download(buffer));
  return step;
}

TEST(CausalLm, F4_EveryParameterGetsAGradient) {
  for (const Device& device : testing::test_devices()) {
    const testing::Poison poison(device);
    for (const Architecture* architecture : architectures()) {
      SCOPED_TRACE(architecture->model_type);
      const ModelConfig config = tiny(architecture->model_type);
      const HostModel model = random_model(config);
      const HostModel gradients = training_step(device, config, model).gradients;
      for (const auto& [name, tensor] : model) {
        ASSERT_TRUE(gradients.contains(name)) << name;
        const std::vector<double>& g = gradients.at(name).values;
        EXPECT_TRUE(std::all_of(g.begin(), g.end(), [](double v) { return std::isfinite(v); })) << name;
        EXPECT_TRUE(std::any_of(g.begin(), g.end(), [](double v) { return v != 0.0; })) << name;
      }
    }
  }
}

// Tokens in parts, each after what the layers remember of those before, among them parts shorter than what a
// convolution sees.
TEST(CausalLm, GenerationStateContinuesASequence) {
  for (const Device& device : testing::test_devices()) {
    for (const Architecture* architecture : architectures()) {
      SCOPED_TRACE(architecture->model_type);
      const ModelConfig config = tiny(architecture->model_type);
      Parameters parameters;
      for (const auto& [name, tensor] : random_model(config))
        parameters.dense.emplace(name, upload(device, tensor));
      Tape tape(device);
      TapeWeights weights(tape, parameters, Trainable::nothing);
      const CausalLm lm(config, weights, DType::f32);
      const HostTensor ids = testing::random_indices({1, 8}, 1, config.vocab_size);
      const HostTensor whole = testing::download(lm.hidden(upload(device, ids)).value());
      GenerationState state;
      std::vector<double> found;
      for (const auto& [begin, end] : {std::pair{0, 1}, {1, 5}, {5, 6}, {6, 8}}) {
        const HostTensor part{
            DType::u32, {1, end - begin}, {ids.values.begin() + begin, ids.values.begin() + end}};
        const Var hidden = lm.hidden(upload(device, part), {.state = &state});
        tape.encoder().commit_and_wait();
        const std::vector<double> values = testing::download(hidden.value()).values;
        found.insert(found.end(), values.begin(), values.end());
      }
      EXPECT_LE(testing::relative_distance(found, whole.values), 1e-5);
    }
  }
}

// As a lookup table and as output matrix, the gradients of the two uses add up.
TEST(CausalLm, F1_TiedTableSumsItsContributions) {
  for (const Device& device : testing::test_devices()) {
    ModelConfig config = tiny("qwen3");
    HostModel model = random_model(config);
    const std::string table = "model.embed_tokens.weight", head = "lm_head.weight";
    model.at(head) = model.at(table);
    const HostModel apart = training_step(device, config, model).gradients;
    config.tie_word_embeddings = true;
    model.erase(head);
    const HostModel tied = training_step(device, config, model).gradients;
    std::vector<double> wanted = apart.at(table).values;
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += apart.at(head).values[i];
    testing::expect_close("tied table", tied.at(table), wanted, {4.0, 1e-7});
  }
}

// Two router rows of opposite sign leave nothing to the third, whose logits are 0.
TEST(CausalLm, H8_ExpertWithoutTokensKeepsItsWeights) {
  for (const Device& device : testing::test_devices()) {
    const testing::Poison poison(device);
    ModelConfig config = tiny("qwen3_moe");
    for (LayerSpec& layer : config.layers) std::get<SparseMlpSpec>(layer.mlp).experts_per_token = 1;
    HostModel model = random_model(config);
    std::vector<double>& router = model.at("model.layers.1.mlp.gate.weight").values;
    for (std::size_t d = 0; d < 16; ++d) {
      router[16 + d] = -router[d];
      router[32 + d] = 0.0;
    }
    const Step step = training_step(device, config, model);
    for (const char* matrix : {"gate_proj", "up_proj", "down_proj"}) {
      const std::string name = str("model.layers.1.mlp.switch_mlp.", matrix, ".weight");
      const std::vector<double>&g = step.gradients.at(name).values, &before = model.at(name).values,
            &after = step.after.at(name).values;
      const auto third = static_cast<std::ptrdiff_t>(g.size() / 3 * 2);
      EXPECT_TRUE(std::all_of(g.begin() + third, g.end(), [](double v) { return v == 0.0; })) << name;
      EXPECT_TRUE(std::equal(before.begin() + third, before.end(), after.begin() + third)) << name;
      EXPECT_TRUE(std::all_of(after.begin(), after.end(), [](double v) { return std::isfinite(v); })) << name;
      EXPECT_FALSE(std::equal(before.begin(), before.begin() + third, after.begin())) << name;
    }
  }
}

}  // namespace
}  // namespace mixtape
