// What each model type reads from config.json and refuses there, beside what all have in common.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "mixtape/io/json_file.h"
#include "mixtape/io/model_config.h"
#include "mixtape/io/tensor_list.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/tiny_model_json.h"

namespace mixtape {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

json tiny(const char* type, const json& settings = json::object()) {
  json config = json::parse(testing::tiny_model_json(type));
  config.update(settings);
  return config;
}

ModelConfig parsed(const char* type, const json& settings = json::object()) {
  return ModelConfig::parse(tiny(type, settings), "config.json");
}

AttentionSpec attention(const ModelConfig& config, std::size_t layer = 0) {
  return std::get<AttentionSpec>(config.layers.at(layer).mixer);
}

void refused(const char* type, const json& settings, const std::string& message) {
  SCOPED_TRACE(str(type, ": ", settings.dump()));
  MIXTAPE_EXPECT_ERROR(parsed(type, settings), ErrorCode::not_supported, "config.json: " + message);
}

void misread(const char* type, const json& settings, const std::string& message) {
  SCOPED_TRACE(str(type, ": ", settings.dump()));
  MIXTAPE_EXPECT_ERROR(parsed(type, settings), ErrorCode::format, "config.json: " + message);
}

json mlx(const char* type, const json& settings = json::object()) {
  return to_mlx_config(tiny(type, settings), {{"bits", 4}}, "config.json");
}

// A key that nobody knows may change the model.
void expect_strict(const char* type) {
  refused(type, {{"z_loss_factor", 0.5}},
          "key 'z_loss_factor' may change the model and is not supported yet");
  EXPECT_NO_THROW(parsed(type, {{"z_loss_factor", nullptr}, {"use_cache", true}}));
}

TEST(Architectures, Gemma3HasDefaults) {
  const ModelConfig config = parsed("gemma3_text", {{"num_hidden_layers", 7}});
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.norm_offset, 1.0);
  EXPECT_EQ(config.embedding_scale, 4.0);
  EXPECT_EQ(config.ropes.at(0).theta, 1e6);
  EXPECT_EQ(config.ropes.at(1).theta, 1e4);
  EXPECT_EQ(attention(config).score_scale(), 1.0 / 16);
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(attention(config, i).window, i == 5 ? 0 : 4096) << i;
    EXPECT_EQ(attention(config, i).rope, i == 5 ? 0 : 1) << i;
  }
}

TEST(Architectures, Gemma3ReadsOlderFiles) {
  const ModelConfig config =
      parsed("gemma3_text", {{"sliding_window", 512},
                             {"sliding_window_pattern", 2},
                             {"rope_theta", 5e5},
                             {"rope_local_base_freq", 2e4},
                             {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                             {"query_pre_attn_scalar", 4}});
  EXPECT_EQ(attention(config, 0).window, 512);
  EXPECT_EQ(attention(config, 1).window, 0);
  EXPECT_EQ(attention(config).score_scale(), 0.5);
  EXPECT_EQ(config.ropes.at(0).type, RopeType::linear);
  EXPECT_EQ(config.ropes.at(0).factor, 8.0);
  EXPECT_EQ(config.ropes.at(0).theta, 5e5);
  EXPECT_EQ(config.ropes.at(1).type, RopeType::plain);
  EXPECT_EQ(config.ropes.at(1).theta, 2e4);
}

TEST(Architectures, Gemma3RefusesWhatItDoesNotCompute) {
  const char* type = "gemma3_text";
  expect_strict(type);
  refused(type, {{"hidden_activation", "gelu"}}, "hidden_activation 'gelu'");
  refused(type, {{"use_bidirectional_attention", true}}, "use_bidirectional_attention = true");
  refused(type, {{"final_logit_softcapping", 30.0}}, "final_logit_softcapping");
  refused(type, {{"attn_logit_softcapping", 50.0}}, "attn_logit_softcapping");
  refused(type, {{"attention_bias", true}}, "attention_bias = true");
  refused(type, {{"layer_types", {"full_attention", "linear_attention"}}}, "layer type \"linear_attention\"");
  refused(type, {{"rope_parameters", {{"full_attention", {{"rope_type", "proportional"}}}}}},
          "rope type 'proportional'");
  refused(type, {{"rope_parameters", {{"rope_theta", 1e4}}}}, "rope_parameters of 'rope_theta'");
  refused(type, {{"rope_parameters", {{"sliding_attention", {{"rope_type", "linear"}, {"factor", 2.0}}}}}},
          "rope type 'linear' of sliding_attention");
  misread(type, {{"layer_types", {"full_attention"}}},
          "layer_types is [\"full_attention\"], expected one for each");
  misread(type, {{"sliding_window", nullptr}}, "has no sliding_window");
  misread(type, {{"query_pre_attn_scalar", 0}}, "query_pre_attn_scalar is 0");
}

TEST(Architectures, Gemma3IsWrittenWithItsInterval) {
  const json out = mlx("gemma3_text", {{"layer_types", {"sliding_attention", "full_attention"}}});
  EXPECT_EQ(out["sliding_window_pattern"], 2);
  EXPECT_EQ(out["sliding_window"], 4096);
  EXPECT_EQ(out["rope_local_base_freq"], 1e4);
  EXPECT_EQ(out["query_pre_attn_scalar"], 256);
  EXPECT_EQ(out["max_position_embeddings"], 131072);
  EXPECT_NO_THROW(ModelConfig::parse(out, "written"));
  const json irregular = {{"num_hidden_layers", 3},
                          {"layer_types", {"sliding_attention", "full_attention", "full_attention"}}};
  MIXTAPE_EXPECT_ERROR(mlx("gemma3_text", irregular), ErrorCode::not_supported,
                       "layer 2 sees everything, mlx-lm has one that sees everything in every 2");
  MIXTAPE_EXPECT_ERROR(mlx("gemma3_text"), ErrorCode::not_supported, "no layer sees everything");
}

TEST(Architectures, SmolLm3RotatesByListOrInterval) {
  const auto rotates = [](const ModelConfig& config) {
    std::vector<bool> found;
    for (std::size_t i = 0; i < config.layers.size(); ++i)
      found.push_back(attention(config, i).rope != kNoRope);
    return found;
  };
  EXPECT_THAT(rotates(parsed("smollm3", {{"num_hidden_layers", 5}})),
              ElementsAre(true, true, true, false, true));
  EXPECT_THAT(rotates(parsed("smollm3", {{"no_rope_layer_interval", 2}})), ElementsAre(true, false));
  EXPECT_THAT(rotates(parsed("smollm3", {{"no_rope_layers", {0, 1}}})), ElementsAre(false, true));
  const ModelConfig config = parsed("smollm3");
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.ropes.at(0).theta, 2e6);
  EXPECT_EQ(mlx("smollm3", {{"no_rope_layer_interval", 2}})["no_rope_layers"], json({1, 0}));
  expect_strict("smollm3");
  refused("smollm3", {{"use_sliding_window", true}}, "use_sliding_window = true");
  refused("smollm3", {{"layer_types", {"sliding_attention", "full_attention"}}},
          "layer type \"sliding_attention\"");
  misread("smollm3", {{"no_rope_layers", {1}}},
          "no_rope_layers is [1], expected one number for each of 2 layers");
  misread("smollm3", {{"no_rope_layers", {1, 2}}},
          "no_rope_layers is 2, expected a whole number from 0 to 1");
}

TEST(Architectures, Olmo2NormsBehindTheHalves) {
  const ModelConfig config = parsed("olmo2");
  std::vector<std::string> norms;
  for (const ModelTensor& t : tensor_list(config)) {
    if (t.name.starts_with("model.layers.1.") && t.name.find("norm") != t.name.npos)
      norms.push_back(t.name.substr(15) + " " + str(t.shape));
  }
  EXPECT_THAT(norms,
              ElementsAre("self_attn.q_norm.weight [16]", "self_attn.k_norm.weight [8]",
                          "post_attention_layernorm.weight [16]", "post_feedforward_layernorm.weight [16]"));
  expect_strict("olmo2");
  refused("olmo2", {{"clip_qkv", 8.0}}, "clip_qkv");
  refused("olmo2", {{"sliding_window", 8}}, "sliding_window");
}

TEST(Architectures, GraniteHasFourMultipliers) {
  const json multipliers = {{"embedding_multiplier", 12.0},
                            {"attention_multiplier", 0.015625},
                            {"residual_multiplier", 0.22},
                            {"logits_scaling", 8.0}};
  const ModelConfig config = parsed("granite", multipliers);
  EXPECT_EQ(config.embedding_scale, 12.0);
  EXPECT_EQ(attention(config).score_scale(), 0.015625);
  EXPECT_EQ(config.layers.at(1).residual_scale, 0.22);
  EXPECT_EQ(config.logit_scale, 0.125);
  EXPECT_EQ(attention(parsed("granite")).score_scale(), 1.0);
  EXPECT_EQ(mlx("granite")["logits_scaling"], 1.0);
  MIXTAPE_EXPECT_ERROR(mlx("granite", {{"head_dim", 12}}), ErrorCode::not_supported,
                       "2 heads of 12, mlx-lm wants heads that make up the hidden size 16 in granite");
  expect_strict("granite");
  misread("granite", {{"logits_scaling", 0}}, "logits_scaling is 0, expected a number above 0");
  for (const auto& [key, value] : multipliers.items()) refused("llama", {{key, value}}, key);
}

TEST(Architectures, Phi3HasFactorsForLongSequences) {
  const auto with = [](const json& scaling) {
    json settings = {
        {"max_position_embeddings", 64},
        {"original_max_position_embeddings", 16},
        {"rope_scaling", {{"type", "su"}, {"short_factor", {1, 1, 1.5, 2}}, {"long_factor", {1, 2, 3, 4}}}}};
    settings["rope_scaling"].update(scaling);
    return settings;
  };
  const RopeConfig rope = parsed("phi3", with(json::object())).ropes.at(0);
  EXPECT_EQ(rope.type, RopeType::longrope);
  EXPECT_EQ(rope.attention_factor, std::sqrt(1.5));  // ln 4 / ln 16
  EXPECT_FALSE(rope.is_long(16));
  EXPECT_TRUE(rope.is_long(17));
  EXPECT_FLOAT_EQ(rope_inverse_frequencies(rope, 8, 16)[2], 0.01f / 1.5f);
  EXPECT_FLOAT_EQ(rope_inverse_frequencies(rope, 8, 17)[2], 0.01f / 3.0f);
  EXPECT_EQ(parsed("phi3", with({{"factor", 1}})).ropes.at(0).attention_factor, 1.0);
  EXPECT_EQ(parsed("phi3", with({{"attention_factor", 1.5}})).ropes.at(0).attention_factor, 1.5);
  misread("phi3", with({{"short_factor", {1, 2}}}),
          "short_factor holds 2 numbers, expected 4, one for each pair");
  misread("phi3", with({{"long_factor", {1, 2, 0, 4}}}), "long_factor holds 0, expected numbers above 0");
  misread("phi3", with({{"long_factor", nullptr}}), "has no long_factor");
  misread("phi3", with({{"original_max_position_embeddings", 8}}),
          "rope setting original_max_position_embeddings is both 8 and 16");
  refused("phi3", with({{"long_mscale", 1.2}}), "rope setting 'long_mscale' may change the model");
  const json out = mlx("phi3", with(json::object()));
  EXPECT_EQ(out["original_max_position_embeddings"], 16);
  EXPECT_EQ(out["rope_scaling"]["type"], "longrope");
  EXPECT_EQ(parsed("phi3", out).ropes.at(0).long_factor, rope.long_factor);
  MIXTAPE_EXPECT_ERROR(mlx("phi3", with({{"attention_factor", 1.5}})), ErrorCode::not_supported,
                       "attention_factor of longrope is 1.5, mlx-lm has 1.22474");
}

TEST(Architectures, DynamicRopeIsPlainUpToItsLength) {
  const auto with = [](const json& scaling) {
    json settings = {{"max_position_embeddings", 64},
                     {"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 4}}}};
    settings["rope_scaling"].update(scaling);
    return settings;
  };
  const RopeConfig rope = parsed("llama", with(json::object())).ropes.at(0);
  EXPECT_EQ(rope_inverse_frequencies(rope, 8, 64), rope_inverse_frequencies(RopeConfig(), 8));
  EXPECT_NO_THROW(rope.check_length(64));
  MIXTAPE_EXPECT_ERROR(rope.check_length(65), ErrorCode::not_supported,
                       "a sequence of 65 tokens, with rope type dynamic expected 64");
  misread("llama", {{"rope_scaling", with(json::object())["rope_scaling"]}},
          "lacks max_position_embeddings, expected it for dynamic");
  refused("llama", with({{"original_max_position_embeddings", 32}}),
          "original_max_position_embeddings of dynamic that is not max_position_embeddings");
  const json out = mlx("llama", with(json::object()));
  EXPECT_EQ(out["rope_scaling"], json({{"type", "dynamic"}, {"rope_type", "dynamic"}, {"factor", 4.0}}));
}

TEST(Architectures, Qwen35HasProjectionsApart) {
  const json rope = {{"rope_type", "default"},
                     {"rope_theta", 1e6},
                     {"mrope_section", {11, 11, 10}},
                     {"mrope_interleaved", true}};
  const ModelConfig config = parsed("qwen3_5_text", {{"rope_parameters", rope}});
  EXPECT_FALSE(std::get<DeltaNetSpec>(config.layers.at(0).mixer).fused);
  EXPECT_TRUE(attention(config, 1).output_gate);
  EXPECT_EQ(config.ropes.at(0).theta, 1e6);
  EXPECT_EQ(config.ropes.at(0).partial_rotary_factor, 0.25);
  const json out = mlx("qwen3_5_text", {{"rope_parameters", rope}});
  EXPECT_EQ(out["model_type"], "qwen3_5");
  EXPECT_EQ(out["full_attention_interval"], 2);
  EXPECT_EQ(out["rope_parameters"]["partial_rotary_factor"], 0.25);
  EXPECT_EQ(out["rope_parameters"]["type"], "default");
  const ModelConfig again = ModelConfig::parse(out, "config.json");
  EXPECT_EQ(again.architecture, config.architecture);
  EXPECT_EQ(again.ropes.at(0).theta, 1e6);
  expect_strict("qwen3_5_text");
}

TEST(Architectures, Phi3SharesMatrices) {
  const ModelConfig config = parsed("phi3", {{"sliding_window", 5}, {"partial_rotary_factor", 0.5}});
  EXPECT_EQ(attention(config).window, 5);
  EXPECT_EQ(config.ropes.at(0).rotary_dims(8), 4);
  std::vector<std::string> matrices;
  for (const ModelTensor& t : tensor_list(config)) {
    if (t.name.starts_with("model.layers.0.") && t.kind == TensorKind::matrix)
      matrices.push_back(t.name.substr(15) + " " + str(t.shape));
  }
  EXPECT_THAT(matrices, ElementsAre("self_attn.qkv_proj.weight [32,16]", "self_attn.o_proj.weight [16,16]",
                                    "mlp.gate_up_proj.weight [48,16]", "mlp.down_proj.weight [16,24]"));
  EXPECT_EQ(mlx("phi3", {{"partial_rotary_factor", 0.5}})["partial_rotary_factor"], 0.5);
  expect_strict("phi3");
  refused("phi3", {{"rope_scaling", {{"type", "yarn"}, {"factor", 2.0}}}, {"max_position_embeddings", 64}},
          "rope type 'yarn' of phi3");
  refused("phi3", {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}, "rope type 'linear' of phi3");
}

TEST(Architectures, GptOssHasSinksWindowsAndAClampedSwiglu) {
  json settings = tiny("gpt_oss", {{"num_hidden_layers", 3}, {"rope_theta", 1000}});
  settings.erase("sliding_window");
  const ModelConfig config = ModelConfig::parse(settings, "config.json");
  EXPECT_TRUE(attention(config).sinks && attention(config).qkv_bias && attention(config).output_bias);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(attention(config, i).window, i == 1 ? 0 : 128) << i;
  const auto& mlp = std::get<SparseMlpSpec>(config.layers[0].mlp);
  EXPECT_TRUE(mlp.bias && mlp.normalized_weights);
  EXPECT_EQ(mlp.experts, 3);
  EXPECT_EQ(mlp.swiglu_alpha, 1.702);
  EXPECT_EQ(mlp.swiglu_limit, 7.0);
  // Without rotary settings: those of the published models.
  const RopeConfig& rope = config.ropes.at(0);
  EXPECT_EQ(rope.type, RopeType::yarn);
  EXPECT_EQ(rope.theta, 1000.0);
  EXPECT_EQ(rope.factor, 32.0);
  EXPECT_EQ(rope.original_max_position_embeddings, 4096);
  EXPECT_FALSE(rope.truncate);
  EXPECT_EQ(parsed("gpt_oss", {{"rope_parameters", {{"rope_type", "default"}}}}).ropes.at(0).theta, 150000.0);
  std::vector<std::string> names;
  for (const ModelTensor& t : tensor_list(config)) {
    if (t.name.starts_with("model.layers.0.mlp.")) names.push_back(t.name.substr(19) + " " + str(t.shape));
  }
  EXPECT_THAT(names, ElementsAre("router.weight [3,16]", "router.bias [3]",
                                 "experts.gate_proj.weight [3,24,16]", "experts.gate_proj.bias [3,24]",
                                 "experts.up_proj.weight [3,24,16]", "experts.up_proj.bias [3,24]",
                                 "experts.down_proj.weight [3,16,24]", "experts.down_proj.bias [3,16]"));
}

TEST(Architectures, GptOssForMlx) {
  const json out = mlx("gpt_oss", {{"sliding_window", 5}});
  EXPECT_EQ(out["layer_types"], json({"sliding_attention", "full_attention"}));
  EXPECT_EQ(out["sliding_window"], 5);
  EXPECT_EQ(out["rope_scaling"]["truncate"], false);
  EXPECT_EQ(parsed("gpt_oss", out).ropes.at(0).factor, 32.0);
  const auto refused_by_mlx = [](const json& settings, const char* message) {
    MIXTAPE_EXPECT_ERROR(mlx("gpt_oss", settings), ErrorCode::not_supported, message);
  };
  refused_by_mlx({{"layer_types", {"full_attention", "full_attention"}}},
                 "no layer is of type sliding_attention, mlx-lm wants one");
  refused_by_mlx({{"swiglu_limit", 6}}, "swiglu_limit is 6, mlx-lm has 7 in gpt_oss");
  refused_by_mlx({{"attention_bias", false}}, "attention_bias = false, mlx-lm has biases");
  refused_by_mlx({{"tie_word_embeddings", true}}, "mlx-lm wants an output matrix");
  expect_strict("gpt_oss");
  refused("gpt_oss", {{"layer_types", {"linear_attention", "full_attention"}}},
          "layer type \"linear_attention\"");
  misread("gpt_oss", {{"sliding_window", nullptr}}, "has no sliding_window");
  misread("gpt_oss", {{"num_experts_per_tok", 4}},
          "num_experts_per_tok is 4, expected a whole number from 1 to 3");
}

}  // namespace
}  // namespace mixtape
