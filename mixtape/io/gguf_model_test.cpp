#include "mixtape/io/gguf_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <numeric>
#include <string>
#include <vector>

#include "mixtape/core/error.h"
#include "mixtape/io/tokenizer_files.h"
#include "mixtape/testing/gguf_builder.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::GgufBuilder;
using ::testing::HasSubstr;

struct Tensor {
  std::vector<std::uint64_t> dims;  // innermost first
  std::vector<float> values;
};

// One layer, hidden 6, 2 heads of 4 over 1, a vocabulary of 5; what a test changes before it is written.
struct Model {
  std::string arch;
  std::map<std::string, std::function<void(GgufBuilder&)>> keys;
  std::map<std::string, Tensor> tensors;

  explicit Model(const std::string& architecture) : arch(architecture) {
    u32("block_count", 1).u32("context_length", 64).u32("embedding_length", 6).u32("attention.head_count", 2);
    u32("attention.head_count_kv", 1).u32("attention.key_length", 4).u32("feed_forward_length", 3);
    f32("attention.layer_norm_rms_epsilon", 1e-5f).f32("rope.freq_base", 5e5f);
    add("token_embd.weight", {6, 5}).add("output_norm.weight", {6});
    add("blk.0.attn_norm.weight", {6}).add("blk.0.ffn_norm.weight", {6});
    add("blk.0.attn_q.weight", {6, 8}).add("blk.0.attn_k.weight", {6, 4});
    add("blk.0.attn_v.weight", {6, 4}).add("blk.0.attn_output.weight", {8, 6});
    if (arch != "qwen3moe") {
      add("blk.0.ffn_gate.weight", {6, 3})
          .add("blk.0.ffn_up.weight", {6, 3})
          .add("blk.0.ffn_down.weight", {3, 6});
    } else {
      u32("expert_count", 3).u32("expert_used_count", 2).u32("expert_feed_forward_length", 2);
      add("blk.0.ffn_gate_inp.weight", {6, 3}).add("blk.0.ffn_gate_exps.weight", {6, 2, 3});
      add("blk.0.ffn_up_exps.weight", {6, 2, 3}).add("blk.0.ffn_down_exps.weight", {2, 6, 3});
    }
    if (arch != "llama") add("blk.0.attn_q_norm.weight", {4}).add("blk.0.attn_k_norm.weight", {4});
  }

  Model& u32(const std::string& key, std::uint32_t value) {
    return set(arch + "." + key, &GgufBuilder::u32, value);
  }
  Model& f32(const std::string& key, float value) { return set(arch + "." + key, &GgufBuilder::f32, value); }
  Model& string(const std::string& key, const std::string& value) {
    return set(arch + "." + key, &GgufBuilder::string, value);
  }
  template <class Put, class Value>
  Model& set(const std::string& key, Put put, const Value& value) {
    keys[key] = [key, put, value](GgufBuilder& b) { (b.*put)(key, value); };
    return *this;
  }
  Model& without(const std::string& name) {
    keys.erase(arch + "." + name);
    tensors.erase(name);
    return *this;
  }

  // Filled with 0, 1, 2, ...
  Model& add(const std::string& name, const std::vector<std::uint64_t>& dims) {
    std::vector<float> values(
        std::accumulate(dims.begin(), dims.end(), std::uint64_t{1}, std::multiplies<>()));
    std::iota(values.begin(), values.end(), 0.0f);
    tensors[name] = {dims, values};
    return *this;
  }

  std::string bytes() const {
    GgufBuilder b;
    b.string("general.architecture", arch);
    for (const auto& [key, put] : keys) put(b);
    for (const auto& [name, tensor] : tensors) b.tensor_f32(name, tensor.dims, tensor.values);
    return b.bytes();
  }
};

class GgufModel : public ::testing::Test {
 protected:
  std::unique_ptr<ModelSource> open(const Model& model) {
    return open_gguf_model(directory_.write("x.gguf", model.bytes()));
  }
  std::string refusal(const Model& model, ErrorCode wanted) {
    try {
      open(model);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), wanted) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("x.gguf"));
      return error.what();
    }
    ADD_FAILURE() << "opened";
    return "";
  }
  static std::vector<float> load(const ModelSource& model, const std::string& name) {
    return model.load(name, DType::f32, Device::cpu()).to_vector<float>();
  }

  testing::TempDirectory directory_;
};

TEST_F(GgufModel, LlamaConfigAndNames) {
  const auto model = open(Model("llama"));
  const nlohmann::json& json = model->config_json();
  EXPECT_EQ(json["architectures"], nlohmann::json::array({"LlamaForCausalLM"}));
  EXPECT_EQ(json["rms_norm_eps"].dump(), "1e-05");
  EXPECT_EQ(json["torch_dtype"], "float32");
  EXPECT_TRUE(json["rope_scaling"].is_null());
  const ModelConfig config = model->config();
  EXPECT_EQ(config.architecture->model_type, "llama");
  EXPECT_EQ(config.vocab_size, 5);
  EXPECT_EQ(config.hidden_size, 6);
  const AttentionSpec attention = std::get<AttentionSpec>(config.layers[0].mixer);
  EXPECT_EQ(attention.head_dim, 4);
  EXPECT_EQ(attention.heads, 2);
  EXPECT_EQ(attention.kv_heads, 1);
  EXPECT_EQ(config.ropes[0].theta, 5e5);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_FALSE(attention.qkv_bias || attention.output_bias);
  EXPECT_THAT(
      model->names(),
      ElementsAre("model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
                  "model.layers.0.mlp.down_proj.weight", "model.layers.0.mlp.gate_proj.weight",
                  "model.layers.0.mlp.up_proj.weight", "model.layers.0.post_attention_layernorm.weight",
                  "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.o_proj.weight",
                  "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.v_proj.weight",
                  "model.norm.weight"));
  EXPECT_EQ(model->shape("model.layers.0.self_attn.o_proj.weight"), (Shape{6, 8}));
  EXPECT_EQ(model->stored_dtype("model.norm.weight"), DType::f32);
  EXPECT_THAT(load(*model, "model.norm.weight"), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(GgufModel, UntiedWhereThereIsAnOutput) {
  const auto model = open(Model("llama").add("output.weight", {6, 5}));
  EXPECT_FALSE(model->config().tie_word_embeddings);
  EXPECT_EQ(model->shape("lm_head.weight"), (Shape{5, 6}));
}

// In the file, rows 0 to 3 of a head of 4 are pairs: Hugging Face's rows 0, 2, 1, 3.
TEST_F(GgufModel, LlamaRowsOfQAndKAreReordered) {
  Model m("llama");
  for (const char* bias : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
    const bool is_q = std::string(bias) == "attn_q", is_output = std::string(bias) == "attn_output";
    m.add(std::string("blk.0.") + bias + ".bias", {is_q ? 8u : is_output ? 6u : 4u});
  }
  const auto model = open(m);
  EXPECT_TRUE(std::get<AttentionSpec>(model->config().layers[0].mixer).qkv_bias);
  const std::string attention = "model.layers.0.self_attn.";
  EXPECT_THAT(load(*model, attention + "q_proj.bias"), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_THAT(load(*model, attention + "k_proj.bias"), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(load(*model, attention + "v_proj.bias"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(load(*model, attention + "o_proj.bias"), ElementsAre(0, 1, 2, 3, 4, 5));
  const std::vector<float> q = load(*model, attention + "q_proj.weight");
  const float first_of_row[] = {0, 12, 6, 18, 24, 36, 30, 42};
  for (std::size_t row = 0; row < 8; ++row) {
    for (std::size_t col = 0; col < 6; ++col)
      EXPECT_EQ(q[row * 6 + col], first_of_row[row] + static_cast<float>(col));
  }
  EXPECT_EQ(load(*model, attention + "k_proj.weight")[6], 12.0f);
  EXPECT_EQ(load(*model, attention + "v_proj.weight")[6], 6.0f);
}

TEST_F(GgufModel, Qwen3RowsStay) {
  const auto model = open(Model("qwen3"));
  EXPECT_EQ(model->config().architecture->model_type, "qwen3");
  EXPECT_EQ(load(*model, "model.layers.0.self_attn.q_proj.weight")[6], 6.0f);
  EXPECT_EQ(model->shape("model.layers.0.self_attn.q_norm.weight"), Shape{4});
  EXPECT_EQ(model->shape("model.layers.0.self_attn.k_norm.weight"), Shape{4});
}

TEST_F(GgufModel, Qwen2HasBiasesOnQKAndV) {
  Model m("qwen2");
  m.without("blk.0.attn_q_norm.weight").without("blk.0.attn_k_norm.weight");
  m.add("blk.0.attn_q.bias", {8}).add("blk.0.attn_k.bias", {4});
  EXPECT_THAT(refusal(m, ErrorCode::format), HasSubstr("lacks tensor 'blk.0.attn_v.bias'"));
  m.add("blk.0.attn_v.bias", {4});
  const auto model = open(m);
  EXPECT_EQ(model->config().architecture->model_type, "qwen2");
  EXPECT_THAT(load(*model, "model.layers.0.self_attn.q_proj.bias"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_FALSE(model->has("model.layers.0.self_attn.o_proj.bias"));
}

TEST_F(GgufModel, Qwen3MoeExpertsAreStacked) {
  const auto model = open(Model("qwen3moe"));
  const ModelConfig config = model->config();
  EXPECT_EQ(config.architecture->model_type, "qwen3_moe");
  const SparseMlpSpec experts = std::get<SparseMlpSpec>(config.layers[0].mlp);
  EXPECT_EQ(experts.experts, 3);
  EXPECT_EQ(experts.experts_per_token, 2);
  EXPECT_EQ(experts.width, 2);
  EXPECT_TRUE(experts.normalized_weights);
  const std::string mlp = "model.layers.0.mlp.";
  EXPECT_EQ(model->shape(mlp + "gate.weight"), (Shape{3, 6}));
  EXPECT_EQ(model->shape(mlp + "switch_mlp.gate_proj.weight"), (Shape{3, 2, 6}));
  EXPECT_EQ(model->shape(mlp + "switch_mlp.up_proj.weight"), (Shape{3, 2, 6}));
  EXPECT_EQ(model->shape(mlp + "switch_mlp.down_proj.weight"), (Shape{3, 6, 2}));
  const std::vector<float> down = load(*model, mlp + "switch_mlp.down_proj.weight");
  for (std::size_t i = 0; i < 36; ++i) ASSERT_EQ(down[i], static_cast<float>(i));
  EXPECT_FALSE(model->has(mlp + "down_proj.weight"));
}

// One layer more, with a delta net of 2 heads of 2 over 2; a layer's second norm has another name.
Model qwen35() {
  Model m("qwen35");
  m.u32("block_count", 2)
      .u32("full_attention_interval", 2)
      .u32("ssm.conv_kernel", 3)
      .u32("ssm.group_count", 2);
  m.u32("ssm.inner_size", 4).u32("ssm.state_size", 2).u32("ssm.time_step_rank", 2);
  for (const char* part : {"attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm", "attn_k_norm"}) {
    const Tensor attention = m.tensors.at(str("blk.0.", part, ".weight"));
    m.without(str("blk.0.", part, ".weight")).add(str("blk.1.", part, ".weight"), attention.dims);
  }
  m.add("blk.1.attn_q.weight", {6, 16}).without("blk.0.ffn_norm.weight").add("blk.1.attn_norm.weight", {6});
  for (const char* layer : {"blk.0.", "blk.1."}) {
    m.add(str(layer, "post_attention_norm.weight"), {6}).add(str(layer, "ffn_gate.weight"), {6, 3});
    m.add(str(layer, "ffn_up.weight"), {6, 3}).add(str(layer, "ffn_down.weight"), {3, 6});
  }
  m.add("blk.0.attn_qkv.weight", {6, 12}).add("blk.0.attn_gate.weight", {6, 4});
  m.add("blk.0.ssm_alpha.weight", {6, 2}).add("blk.0.ssm_beta.weight", {6, 2}).add("blk.0.ssm_dt.bias", {2});
  m.add("blk.0.ssm_conv1d.weight", {3, 12}).add("blk.0.ssm_norm.weight", {2});
  m.add("blk.0.ssm_out.weight", {4, 6}).add("blk.0.ssm_a", {2});
  m.tensors["blk.0.ssm_a"].values = {-1.0f, -16.0f};
  return m;
}

TEST_F(GgufModel, DeltaNetsStoreDecaysAndTapsInTheirOwnWay) {
  const auto model = open(qwen35());
  const ModelConfig config = model->config();
  EXPECT_EQ(config.architecture->model_type, "qwen3_5_text");
  EXPECT_TRUE(std::get<AttentionSpec>(config.layers[1].mixer).output_gate);
  EXPECT_EQ(std::get<DeltaNetSpec>(config.layers[0].mixer).value_dim, 2);
  EXPECT_EQ(config.ropes[0].partial_rotary_factor, 1.0);
  const std::string mixer = "model.layers.0.linear_attn.";
  EXPECT_THAT(load(*model, mixer + "A_log"), ElementsAre(0.0f, std::log(16.0f)));
  EXPECT_EQ(model->shape(mixer + "conv1d.weight"), (Shape{12, 3, 1}));
  EXPECT_EQ(model->load(mixer + "conv1d.weight", DType::f32, Device::cpu()).shape(), (Shape{12, 3, 1}));
  EXPECT_THAT(load(*model, "model.layers.0.post_attention_layernorm.weight"), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(GgufModel, DeltaNetsThatAreNotUnderstoodAreNamed) {
  EXPECT_THAT(refusal(qwen35().u32("ssm.inner_size", 6), ErrorCode::format),
              HasSubstr("ssm.inner_size' is 6, expected 2 heads of 2"));
  EXPECT_THAT(refusal(qwen35().u32("ssm.group_count", 1), ErrorCode::not_supported),
              HasSubstr("2 heads of values and 1 of keys"));
  EXPECT_THAT(refusal(qwen35().u32("attention.recurrent_layers", 1), ErrorCode::format),
              HasSubstr("attention.recurrent_layers' is 1 of u32, expected true or false for each layer"));
}

TEST_F(GgufModel, LoadRoundsOnceAndRefusesOtherTypes) {
  Model m("llama");
  m.tensors["output_norm.weight"].values = {1.00390625f, 1.01171875f, 65520, -0.0f, 3, 1e-8f};
  const auto model = open(m);
  const auto bf = model->load("model.norm.weight", DType::bf16, Device::cpu()).to_vector<bf16>();
  const auto half = model->load("model.norm.weight", DType::f16, Device::cpu()).to_vector<f16>();
  EXPECT_EQ(static_cast<float>(bf[0]), 1.0f);  // ties to even
  EXPECT_EQ(static_cast<float>(bf[1]), 1.015625f);
  EXPECT_TRUE(std::isinf(static_cast<float>(half[2])));
  EXPECT_EQ(half[3].bits, 0x8000);
  EXPECT_THROW(model->load("model.norm.weight", DType::u32, Device::cpu()), Error);
  EXPECT_THROW(model->load("model.norms.weight", DType::f32, Device::cpu()), Error);
  EXPECT_THROW(model->shape("x"), Error);
  EXPECT_FALSE(model->has("x"));
}

// Large enough that rows are decoded by several threads.
TEST_F(GgufModel, LargeTensorsKeepTheirRows) {
  constexpr std::uint64_t kRows = 50000;
  const auto model = open(Model("llama").add("token_embd.weight", {6, kRows}));
  const std::vector<float> table = load(*model, "model.embed_tokens.weight");
  ASSERT_EQ(table.size(), 6 * kRows);
  for (std::size_t i = 0; i < table.size(); ++i) ASSERT_EQ(table[i], static_cast<float>(i));
}

TEST_F(GgufModel, LinearRope) {
  const auto rope = open(Model("llama").string("rope.scaling.type", "linear").f32("rope.scaling.factor", 4))
                        ->config()
                        .ropes[0];
  EXPECT_EQ(rope.type, RopeType::linear);
  EXPECT_EQ(rope.factor, 4.0);
  EXPECT_EQ(open(Model("llama").f32("rope.scale_linear", 2))->config().ropes[0].factor, 2.0);
  EXPECT_EQ(open(Model("llama").string("rope.scaling.type", "none"))->config().ropes[0].type,
            RopeType::plain);
  EXPECT_THAT(refusal(Model("llama").string("rope.scaling.type", "longrope"), ErrorCode::not_supported),
              HasSubstr("'longrope', expected none, linear or yarn"));
  EXPECT_THAT(refusal(Model("llama").f32("rope.scaling.attn_factor", 2), ErrorCode::not_supported),
              HasSubstr("attn_factor' is 2, expected 1 without yarn or longrope"));
}

TEST_F(GgufModel, YarnRope) {
  const auto yarn = [] {
    return Model("llama").string("rope.scaling.type", "yarn").f32("rope.scaling.factor", 4);
  };
  const RopeConfig usual = open(yarn())->config().ropes[0];
  EXPECT_EQ(usual.type, RopeType::yarn);
  EXPECT_EQ(usual.original_max_position_embeddings, 64);  // the context
  EXPECT_EQ(usual.attention_factor, 0.1 * std::log(4.0) + 1.0);
  const RopeConfig other = open(yarn()
                                    .u32("rope.scaling.original_context_length", 16)
                                    .f32("rope.scaling.attn_factor", 0.5)
                                    .f32("rope.scaling.yarn_beta_fast", 32)
                                    .f32("rope.scaling.yarn_beta_slow", 1))
                               ->config()
                               .ropes[0];
  EXPECT_EQ(other.original_max_position_embeddings, 16);
  EXPECT_EQ(other.attention_factor, 0.5 * usual.attention_factor);
  EXPECT_THAT(refusal(yarn().f32("rope.scaling.yarn_beta_fast", 16), ErrorCode::not_supported),
              HasSubstr("yarn_beta_fast' is 16, which llama.cpp does not read: expected 32"));
  EXPECT_THAT(refusal(yarn().f32("rope.scaling.yarn_log_multiplier", 1), ErrorCode::not_supported),
              HasSubstr("yarn_log_multiplier"));
}

// llama.cpp's converter leaves the type out.
TEST_F(GgufModel, LongRope) {
  const auto longrope = [] {
    Model m("phi3");
    for (const char* name : {"q", "k", "v"}) m.without(str("blk.0.attn_", name, ".weight"));
    for (const char* name : {"q_norm", "k_norm"}) m.without(str("blk.0.attn_", name, ".weight"));
    m.without("blk.0.ffn_gate.weight")
        .add("blk.0.ffn_up.weight", {6, 6})
        .add("blk.0.attn_qkv.weight", {6, 16});
    m.u32("rope.scaling.original_context_length", 16).f32("rope.scaling.attn_factor", 1.2f);
    m.tensors["rope_factors_short.weight"] = {{2}, {1.0f, 1.1f}};
    m.tensors["rope_factors_long.weight"] = {{2}, {1.5f, 2.3f}};
    return m;
  };
  for (const Model& m : {longrope(), longrope().string("rope.scaling.type", "longrope")}) {
    const RopeConfig rope = open(m)->config().ropes[0];
    EXPECT_EQ(rope.type, RopeType::longrope);
    EXPECT_EQ(rope.original_max_position_embeddings, 16);
    EXPECT_EQ(rope.short_factor, (std::vector<double>{1.0, 1.1}));
    EXPECT_EQ(rope.long_factor, (std::vector<double>{1.5, 2.3}));
    EXPECT_EQ(rope.attention_factor, 1.2);
  }
  EXPECT_THAT(refusal(longrope().without("rope_factors_short.weight"), ErrorCode::format),
              HasSubstr("lacks tensor 'rope_factors_short.weight'"));
  EXPECT_THAT(refusal(longrope().add("rope_factors_long.weight", {3}), ErrorCode::format),
              HasSubstr("'rope_factors_long.weight' is F32 [3], expected F32 [2]"));
  EXPECT_THAT(refusal(longrope().string("rope.scaling.type", "yarn"), ErrorCode::not_supported),
              HasSubstr("rope_factors_long.weight together with yarn scaling"));
}

// The rule stated by wavelength.
float llama3_divisor(double theta, double i, double dim, double factor, double length) {
  const double f = std::pow(theta, -2 * i / dim), wave = 2 * std::numbers::pi / f;
  if (wave < length / 4) return 1;
  if (wave > length) return static_cast<float>(factor);
  const double s = (length / wave - 1) / 3;
  return static_cast<float>(f / ((1 - s) * f / factor + s * f));
}

Model with_rope_freqs(double length) {
  Model m("llama");
  m.u32("attention.key_length", 64).u32("attention.head_count", 2);
  m.add("blk.0.attn_q.weight", {6, 128}).add("blk.0.attn_k.weight", {6, 64});
  m.add("blk.0.attn_v.weight", {6, 64}).add("blk.0.attn_output.weight", {128, 6});
  m.add("rope_freqs.weight", {32});
  for (int i = 0; i < 32; ++i) {
    m.tensors["rope_freqs.weight"].values[static_cast<std::size_t>(i)] =
        llama3_divisor(5e5, i, 64, 8, length);
  }
  return m;
}

TEST_F(GgufModel, Llama3RopeIsRecognized) {
  const auto model = open(with_rope_freqs(8192));
  const RopeConfig rope = model->config().ropes[0];
  EXPECT_EQ(rope.type, RopeType::llama3);
  EXPECT_EQ(rope.factor, 8.0);
  EXPECT_EQ(rope.low_freq_factor, 1.0);
  EXPECT_EQ(rope.high_freq_factor, 4.0);
  EXPECT_EQ(rope.original_max_position_embeddings, 8192);
  EXPECT_FALSE(model->has("rope_freqs.weight"));
  const auto other = open(with_rope_freqs(4096).u32("rope.scaling.original_context_length", 4096));
  EXPECT_EQ(other->config().ropes[0].original_max_position_embeddings, 4096);
}

TEST_F(GgufModel, OtherRopeFrequenciesAreRefused) {
  EXPECT_THAT(refusal(with_rope_freqs(4096), ErrorCode::not_supported), HasSubstr("rope_freqs.weight["));
  Model nan = with_rope_freqs(8192);
  nan.tensors["rope_freqs.weight"].values[31] = NAN;
  EXPECT_THAT(refusal(nan, ErrorCode::not_supported), HasSubstr("rope_freqs.weight["));
  EXPECT_THAT(refusal(Model("llama").add("rope_freqs.weight", {3}), ErrorCode::format),
              HasSubstr("rope_freqs.weight"));
  Model both = with_rope_freqs(8192).string("rope.scaling.type", "linear").f32("rope.scaling.factor", 2);
  EXPECT_THAT(refusal(both, ErrorCode::not_supported), HasSubstr("linear"));
  Model ones("llama");
  ones.tensors["rope_freqs.weight"] = {{2}, {1, 1}};
  EXPECT_EQ(open(ones)->config().ropes[0].type, RopeType::plain);
}

TEST_F(GgufModel, J5_IdsBeyondTheVocabulary) {
  for (const char* name : {"eos", "bos", "padding"}) {
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    EXPECT_THAT(refusal(Model("llama").set(key, &GgufBuilder::u32, 5u), ErrorCode::format),
                AllOf(HasSubstr(key), HasSubstr("vocabulary size 5")));
  }
  const auto model = open(Model("llama").set("tokenizer.ggml.eos_token_id", &GgufBuilder::u32, 4u));
  EXPECT_THAT(model->config().eos_token_ids, ElementsAre(4));
  const auto turns = open(Model("llama")
                              .set("tokenizer.ggml.eos_token_id", &GgufBuilder::u32, 4u)
                              .set("tokenizer.ggml.eot_token_id", &GgufBuilder::u32, 2u)
                              .set("tokenizer.ggml.eom_token_id", &GgufBuilder::u32, 4u));
  EXPECT_THAT(turns->config().eos_token_ids, ElementsAre(4, 2));
  EXPECT_EQ(turns->config_json()["eos_token_id"], nlohmann::json({4, 2}));
  EXPECT_THAT(stop_ids(*turns, Tokenizer::load("tests/data/stories260k")), ElementsAre(2, 4));
  const std::vector<std::string> six = {"a", "b", "c", "d", "e", "f"};
  EXPECT_THAT(
      refusal(Model("llama").set("tokenizer.ggml.tokens", &GgufBuilder::strings, six), ErrorCode::format),
      HasSubstr("6 entries"));
}

TEST_F(GgufModel, TensorsMustBeThoseOfTheArchitecture) {
  for (const char* name :
       {"token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight", "blk.0.ffn_down.weight"}) {
    EXPECT_THAT(refusal(Model("llama").without(name), ErrorCode::format), HasSubstr(str("'", name, "'")));
  }
  EXPECT_THAT(refusal(Model("llama").add("blk.0.attn_v.weight", {6, 5}), ErrorCode::format),
              AllOf(HasSubstr("'blk.0.attn_v.weight'"), HasSubstr("[5,6]"), HasSubstr("[4,6]")));
  EXPECT_THAT(refusal(Model("llama").add("blk.0.attn_q_norm.weight", {4}), ErrorCode::not_supported),
              HasSubstr("'blk.0.attn_q_norm.weight'"));
  EXPECT_THAT(refusal(Model("llama").add("blk.1.attn_norm.weight", {6}), ErrorCode::not_supported),
              HasSubstr("'blk.1.attn_norm.weight'"));
  EXPECT_THAT(refusal(Model("llama").add("blk.0.attn_q.bias", {8}), ErrorCode::format), HasSubstr("bias'"));
  EXPECT_THAT(refusal(Model("llama").add("token_embd.weight", {30}), ErrorCode::format),
              HasSubstr("token_embd.weight"));
}

TEST_F(GgufModel, KeysMustBeThereAndAgree) {
  for (const char* key : {"attention.layer_norm_rms_epsilon", "block_count", "embedding_length",
                          "context_length", "attention.head_count", "feed_forward_length"}) {
    EXPECT_THAT(refusal(Model("llama").without(key), ErrorCode::format), HasSubstr(key));
    EXPECT_THAT(refusal(Model("llama").u32(key, 0), ErrorCode::format), HasSubstr(key));
  }
  EXPECT_THAT(refusal(Model("llama").u32("vocab_size", 6), ErrorCode::format), HasSubstr("vocab_size"));
  EXPECT_THAT(refusal(Model("llama").u32("attention.value_length", 2), ErrorCode::format),
              HasSubstr("value_length"));
  EXPECT_THAT(refusal(Model("llama").u32("rope.dimension_count", 2), ErrorCode::format),
              HasSubstr("dimension_count' is 2, expected the head size 4"));
  for (const std::uint32_t dims : {3, 6}) {
    EXPECT_THAT(refusal(Model("phi3").u32("rope.dimension_count", dims), ErrorCode::format),
                HasSubstr("expected an even number up to the head size 4"));
  }
  EXPECT_THAT(refusal(Model("llama").u32("attention.key_length", 3), ErrorCode::format),
              HasSubstr("key_length"));
  EXPECT_THAT(refusal(Model("llama").u32("block_count", 0xffffffff), ErrorCode::format),
              HasSubstr("block_count"));
  EXPECT_THAT(refusal(Model("llama").u32("attention.head_count", 0xffffffff), ErrorCode::format),
              HasSubstr("head_count"));
  EXPECT_THAT(refusal(Model("llama").f32("rope.freq_base", NAN), ErrorCode::format), HasSubstr("freq_base"));
  EXPECT_THAT(refusal(Model("llama").string("block_count", "1"), ErrorCode::format),
              HasSubstr("block_count"));
}

TEST_F(GgufModel, WhatIsNotSupportedIsNamed) {
  EXPECT_THAT(refusal(Model("gpt2"), ErrorCode::not_supported), HasSubstr("'gpt2'"));
  EXPECT_THAT(refusal(Model("llama").u32("expert_count", 8), ErrorCode::not_supported),
              HasSubstr("expert_count"));
  EXPECT_THAT(refusal(Model("qwen3").u32("attention.sliding_window", 128), ErrorCode::not_supported),
              HasSubstr("qwen3.attention.sliding_window"));
  EXPECT_THAT(refusal(Model("llama").set("split.count", &GgufBuilder::u32, 2u), ErrorCode::not_supported),
              HasSubstr("split"));
}

// Whatever a damaged byte does, it is found, or the file opens and can be read whole.
TEST_F(GgufModel, DamagedBytesAreErrorsOrHarmless) {
  const std::string whole = Model("qwen3moe").bytes();
  constexpr int kMasks[] = {0x01, 0x80, 0xff};
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ kMasks[at % 3]);
    try {
      const auto model = open_gguf_model(directory_.write("x.gguf", damaged));
      for (const std::string& name : model->names()) load(*model, name);
    } catch (const Error&) {
    }
  }
}

TEST_F(GgufModel, TokenizerFilesComeAlong) {
  Model m("llama");
  m.set("tokenizer.ggml.model", &GgufBuilder::string, std::string("gpt2"));
  m.set("tokenizer.ggml.pre", &GgufBuilder::string, std::string("gpt-2"));
  m.set("tokenizer.ggml.tokens", &GgufBuilder::strings, std::vector<std::string>{"a", "b", "ab"});
  m.set("tokenizer.ggml.merges", &GgufBuilder::strings, std::vector<std::string>{"a b"});
  const auto model = open(m);
  const auto files = model->extra_files();
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(nlohmann::json::parse(files.at("tokenizer.json")), model->tokenizer_json());
  EXPECT_EQ(nlohmann::json::parse(files.at("tokenizer_config.json")), model->tokenizer_config_json());
  EXPECT_EQ(model->tokenizer_json()["model"]["vocab"]["ab"], 2);
  EXPECT_THROW(open(Model("llama"))->tokenizer_json(), Error);
}

}  // namespace
}  // namespace mixtape
