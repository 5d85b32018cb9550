// A training step of tiny models: which parameters get gradients, and what happens to those that get none.
#include "mixtape/nn/causal_lm.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "mixtape/io/tensor_list.h"
#include "mixtape/nn/generation_step.h"
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

// Recorded steps give what passes with growing states give, for every kind of layer.
TEST(CausalLm, GenerationStepsContinueASequence) {
  for (const Device& device : testing::test_devices()) {
    if (!device.backend().can_record()) continue;
    for (const char* type : {"qwen3", "qwen3_moe", "qwen3_next", "smollm3", "olmo2"}) {
      const ModelConfig config = tiny(type);
      Parameters parameters;
      for (const auto& [name, tensor] : random_model(config))
        parameters.dense.emplace(name, upload(device, tensor));
      Tape tape(device);
      const NoGrad guard(tape);
      TapeWeights weights(tape, parameters, Trainable::nothing);
      const CausalLm lm(config, weights, DType::f32);
      constexpr std::int64_t kPrompt = 3, kSteps = 6;
      const HostTensor ids = testing::random_indices({kPrompt + kSteps, 2}, 1, config.vocab_size);
      const auto at = [&](std::int64_t position, std::int64_t row) {
        return static_cast<std::uint32_t>(ids.values[static_cast<std::size_t>(position * 2 + row)]);
      };
      const auto part = [&](std::int64_t begin, std::int64_t count) {
        std::vector<std::uint32_t> values;
        for (std::int64_t row = 0; row < 2; ++row)
          for (std::int64_t i = begin; i < begin + count; ++i) values.push_back(at(i, row));
        return Buffer::from(device, {2, count}, values);
      };
      GenerationState grows, stays;
      lm.hidden(part(0, kPrompt), {.state = &grows});
      lm.hidden(part(0, kPrompt), {.state = &stays});
      ASSERT_TRUE(GenerationStep::is_possible(lm, device, 4)) << type;
      GenerationStep step(lm, tape, stays, kPrompt + kSteps);
      for (std::int64_t i = kPrompt; i < kPrompt + kSteps; ++i) {
        const Var wanted = lm.logits(lm.hidden(part(i, 1), {.state = &grows}));  // [2, 1, V]
        const Buffer found = step.logits({at(i, 0), at(i, 1)});                  // [2, V]
        tape.encoder().commit_and_wait();
        const auto a = found.to_vector<float>(), b = wanted.value().to_vector<float>();
        ASSERT_EQ(a.size(), b.size());
        for (std::size_t k = 0; k < a.size(); ++k)
          ASSERT_NEAR(a[k], b[k], 1e-4 * (1.0 + std::abs(b[k]))) << type << " " << i;
      }
      EXPECT_EQ(stays.length, kPrompt + kSteps);
      MIXTAPE_EXPECT_ERROR(step.logits({1, 1}), ErrorCode::invalid_argument,
                           "generation: the state holds 9 tokens");
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
