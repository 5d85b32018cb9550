#include "mixtape/io/gguf_config_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "mixtape/io/gguf_architecture.h"
#include "mixtape/io/gguf_model.h"
#include "mixtape/io/gguf_rope.h"
#include "mixtape/io/gguf_writer.h"
#include "mixtape/io/json_file.h"
#include "mixtape/io/tensor_list.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"
#include "mixtape/testing/tiny_model_json.h"

namespace mixtape {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// The config of a model whose file holds what is written for this one; its weights are zero.
class GgufConfigWriter : public ::testing::Test {
 protected:
  ModelConfig written_and_read(const json& config_json) {
    const ModelConfig config = ModelConfig::parse(config_json, "config.json");
    GgufMetadata metadata;
    add_gguf_config(config_json, "config.json", metadata);
    std::vector<GgufTensorSpec> specs;
    for (const ModelTensor& t : tensor_list(config))
      specs.push_back({t.gguf_name, GgufType::f32, t.gguf_shape()});
    std::map<std::string, std::vector<float>> divisors;
    for (const GgufRopeTensor& t : gguf_rope_tensors(config)) {
      specs.push_back({t.name, GgufType::f32, {std::ssize(t.divisors)}});
      divisors[t.name] = t.divisors;
    }
    AtomicFile file(directory_ / "x.gguf");
    GgufWriter writer(file, GgufLayout(metadata, specs));
    for (const GgufTensorSpec& spec : specs) {
      std::vector<float> values(static_cast<std::size_t>(spec.shape.numel()));
      if (divisors.contains(spec.name)) values = divisors[spec.name];
      writer.write(spec.name, std::as_bytes(std::span(values)));
    }
    writer.commit();
    return open_gguf_model(directory_ / "x.gguf")->config();
  }

  static void expect_equal(const ModelConfig& a, const ModelConfig& b) {
    EXPECT_EQ(a.vocab_size, b.vocab_size);
    EXPECT_EQ(a.hidden_size, b.hidden_size);
    EXPECT_EQ(a.max_position_embeddings, b.max_position_embeddings);
    EXPECT_EQ(a.rms_norm_eps, b.rms_norm_eps);
    EXPECT_EQ(a.tie_word_embeddings, b.tie_word_embeddings);
    EXPECT_EQ(a.norm_offset, b.norm_offset);
    EXPECT_EQ(a.embedding_scale, b.embedding_scale);
    EXPECT_EQ(a.logit_scale, b.logit_scale);
    ASSERT_EQ(a.ropes.size(), b.ropes.size());
    for (std::size_t i = 0; i < a.ropes.size(); ++i) {
      const RopeConfig &r = a.ropes[i], &s = b.ropes[i];
      EXPECT_EQ(r.type, s.type);
      EXPECT_EQ(r.theta, s.theta);
      EXPECT_EQ(r.partial_rotary_factor, s.partial_rotary_factor);
      EXPECT_NEAR(r.factor, s.factor, 1e-6 * r.factor);
      EXPECT_EQ(r.original_max_position_embeddings, s.original_max_position_embeddings);
      EXPECT_NEAR(r.attention_factor, s.attention_factor, 1e-6);
      EXPECT_EQ(r.short_factor, s.short_factor);
      EXPECT_EQ(r.long_factor, s.long_factor);
    }
    ASSERT_EQ(a.layers.size(), b.layers.size());
    for (std::size_t i = 0; i < a.layers.size(); ++i) expect_equal(a.layers[i], b.layers[i]);
    const std::vector<ModelTensor> t = tensor_list(a), u = tensor_list(b);
    ASSERT_EQ(t.size(), u.size());
    for (std::size_t i = 0; i < t.size(); ++i) {
      EXPECT_EQ(t[i].name, u[i].name);
      EXPECT_EQ(t[i].shape, u[i].shape);
      EXPECT_EQ(t[i].gguf_interleaved_heads, u[i].gguf_interleaved_heads) << t[i].name;
    }
  }

  static void expect_equal(const LayerSpec& a, const LayerSpec& b) {
    EXPECT_EQ(a.residual_scale, b.residual_scale);
    const auto *p = std::get_if<AttentionSpec>(&a.mixer), *q = std::get_if<AttentionSpec>(&b.mixer);
    if (p == nullptr) return;
    ASSERT_NE(q, nullptr);
    EXPECT_EQ(p->rope, q->rope);
    EXPECT_EQ(p->score_scale(), q->score_scale());
  }

  static json tiny(const std::string& type) {
    json config = json::parse(testing::tiny_model_json(type));
    config["max_position_embeddings"] = 64;
    if (config.contains("num_experts")) config["norm_topk_prob"] = true;
    if (type == "gemma3_text") config["query_pre_attn_scalar"] = config["head_dim"];
    if (config.contains("linear_num_key_heads")) {
      config["linear_num_key_heads"] = config["linear_num_value_heads"];
      config["linear_value_head_dim"] = config["linear_key_head_dim"];
    }
    return config;
  }
  static void refused(const json& config, ErrorCode code, const std::string& text) {
    GgufMetadata metadata;
    MIXTAPE_EXPECT_ERROR(add_gguf_config(config, "config.json", metadata), code, text);
  }

  testing::TempDirectory directory_;
};

TEST_F(GgufConfigWriter, ReadAgainItIsTheSameModel) {
  for (const char* name : {"llama", "llama_tied_bias_rope3", "mistral", "qwen2", "qwen3", "phi3_partial",
                           "qwen3_yarn", "phi3_longrope", "phi3_longrope_short"}) {
    const json config = read_config_json(std::string("tests/data/parity/") + name + "/config.json");
    SCOPED_TRACE(name);
    expect_equal(ModelConfig::parse(config, "config.json"), written_and_read(config));
  }
  json gemma = read_config_json("tests/data/parity/gemma3_text/config.json");
  gemma["query_pre_attn_scalar"] = gemma["head_dim"];
  expect_equal(ModelConfig::parse(gemma, "config.json"), written_and_read(gemma));
  for (const Architecture* a : architectures()) {
    if (find_gguf_architecture_of(a->model_type) == nullptr) continue;
    SCOPED_TRACE(a->model_type);
    const json config = tiny(a->model_type);
    expect_equal(ModelConfig::parse(config, "config.json"), written_and_read(config));
  }
}

TEST_F(GgufConfigWriter, KeepsRotaryScaling) {
  json config = tiny("llama");
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.5}};
  expect_equal(ModelConfig::parse(config, "config.json"), written_and_read(config));
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 32}};
  expect_equal(ModelConfig::parse(config, "config.json"), written_and_read(config));
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}, {"attention_factor", 0.8}};
  expect_equal(ModelConfig::parse(config, "config.json"), written_and_read(config));
}

// 30 / 44 * 44 is less than 30 in f64.
TEST_F(GgufConfigWriter, KeepsHowMuchOfAHeadIsRotated) {
  json config = tiny("phi3");
  config["hidden_size"] = 88;
  config["head_dim"] = 44;
  config["partial_rotary_factor"] = 0.69;
  const ModelConfig read = written_and_read(config);
  EXPECT_EQ(read.ropes[0].rotary_dims(44), 30);
}

TEST_F(GgufConfigWriter, RefusesWhatLlamaCppDoesNotCompute) {
  json config = tiny("qwen3_next");
  config["linear_value_head_dim"] = 6;
  refused(config, ErrorCode::not_supported, "linear_key_head_dim is 4 and linear_value_head_dim 6");
  config = tiny("qwen3_next");
  config["full_attention_interval"] = 3;
  refused(config, ErrorCode::not_supported, "no layer is full attention, llama.cpp wants one in qwen3_next");
  config["full_attention_interval"] = 1;
  refused(config, ErrorCode::not_supported, "no layer is linear attention");
  config["layer_types"] = {"full_attention", "linear_attention"};
  refused(config, ErrorCode::not_supported, "layer 1 is linear attention, llama.cpp has full attention");
  config = tiny("qwen3_5_text");
  config["linear_num_key_heads"] = 1;
  refused(config, ErrorCode::not_supported, "linear_num_value_heads is 2 and linear_num_key_heads 1");
  config = tiny("llama");
  config["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 2.0}};
  refused(config, ErrorCode::not_supported, "rope type is dynamic, which llama.cpp has not in llama");
  config = tiny("qwen3_moe");
  config["norm_topk_prob"] = false;
  refused(config, ErrorCode::not_supported, "layer 0 has norm_topk_prob = false");
  config = tiny("qwen3_moe");
  config["mlp_only_layers"] = {1};
  refused(config, ErrorCode::not_supported, "layer 1 has no experts");
  config = tiny("qwen3");
  config["attention_bias"] = true;
  refused(config, ErrorCode::not_supported, "attention_bias = true, llama.cpp has no biases in qwen3");
  config = tiny("qwen2");
  config["head_dim"] = 12;
  refused(config, ErrorCode::not_supported, "2 heads of 12");
  config = tiny("qwen3");
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 32}};
  refused(config, ErrorCode::not_supported, "rope type is llama3, which llama.cpp has not in qwen3");
  config["rope_scaling"] = {
      {"rope_type", "longrope"}, {"short_factor", {1, 1, 1, 1}}, {"long_factor", {1, 2, 3, 4}}};
  refused(config, ErrorCode::not_supported, "rope type is longrope, which llama.cpp has not in qwen3");
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}};
  for (const json& other : {json{{"beta_fast", 16.0}}, {{"beta_slow", 2.0}}, {{"truncate", false}}}) {
    config["rope_scaling"] = yarn;
    config["rope_scaling"].update(other);
    refused(config, ErrorCode::not_supported, "llama.cpp has 32, 1 and true");
  }
  config = tiny("gemma3_text");
  config["rope_parameters"]["full_attention"] = yarn;
  config["rope_parameters"]["full_attention"]["attention_factor"] = 2.0;
  refused(config, ErrorCode::not_supported, "attention_factor of yarn is 2, llama.cpp has 1.13863");
  config = tiny("llama");
  config["partial_rotary_factor"] = 0.5;
  refused(config, ErrorCode::not_supported, "partial_rotary_factor is 0.5");
  config = tiny("llama");
  config.erase("max_position_embeddings");
  refused(config, ErrorCode::format, "config.json: lacks max_position_embeddings");
}

}  // namespace
}  // namespace mixtape
