#include "mixtape/io/model_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "mixtape/core/error.h"
#include "mixtape/io/json_file.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using nlohmann::json;

json llama() {
  return json::parse(R"({"model_type":"llama","vocab_size":100,"hidden_size":64,"intermediate_size":96,
    "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"rms_norm_eps":1e-6,
    "rope_theta":10000.0,"hidden_act":"silu"})");
}

json qwen3_moe() {
  json config = llama();
  config.update(
      json::parse(R"({"model_type":"qwen3_moe","head_dim":32,"num_experts":8,"num_experts_per_tok":2,
    "moe_intermediate_size":48,"decoder_sparse_step":1,"mlp_only_layers":[]})"));
  return config;
}

ModelConfig parse(const json& config) { return ModelConfig::parse(config, "config.json"); }

json with(json config, const char* key, const json& value) {
  config[key] = value;
  return config;
}

AttentionSpec attention(const ModelConfig& config) {
  return std::get<AttentionSpec>(config.layers.front().mixer);
}

SparseMlpSpec experts(const ModelConfig& config) {
  return std::get<SparseMlpSpec>(config.layers.front().mlp);
}

bool mlp_bias(const ModelConfig& config) { return std::get<DenseMlpSpec>(config.layers.front().mlp).bias; }

std::vector<bool> sparse_layers(const ModelConfig& config) {
  std::vector<bool> sparse;
  for (const LayerSpec& layer : config.layers) sparse.push_back(layer.is_sparse());
  return sparse;
}

void expect_refused(const json& config, ErrorCode code, const std::string& message) {
  MIXTAPE_EXPECT_ERROR(parse(config), code, "config.json: ");
  MIXTAPE_EXPECT_ERROR(parse(config), code, message);
}

void expect_value_refused(const char* key, const json& value, ErrorCode code, const std::string& message) {
  SCOPED_TRACE(str(key, " = ", value.dump()));
  expect_refused(with(llama(), key, value), code, message);
}

TEST(ModelConfig, ReadsTheRealFiles) {
  const auto read = [](const std::string& path) {
    return parse(read_json("tests/data/" + path + "/config.json"));
  };
  const ModelConfig stories = read("stories260k");
  EXPECT_EQ(stories.architecture->model_type, "llama");
  EXPECT_EQ(stories.vocab_size, 512);
  EXPECT_EQ(attention(stories).head_dim, 8);
  EXPECT_EQ(stories.rms_norm_eps, 1e-5);
  EXPECT_TRUE(stories.tie_word_embeddings);
  EXPECT_EQ(stories.bos_token_id, 1);
  EXPECT_EQ(stories.eos_token_ids, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(stories.dtype, DType::f32);

  const ModelConfig rope3 = read("parity/llama_tied_bias_rope3");
  EXPECT_EQ(rope3.ropes[0].type, RopeType::llama3);
  EXPECT_EQ(rope3.ropes[0].factor, 8.0);
  EXPECT_EQ(rope3.ropes[0].original_max_position_embeddings, 32);
  EXPECT_TRUE(attention(rope3).qkv_bias && attention(rope3).output_bias && mlp_bias(rope3));

  EXPECT_EQ(attention(read("parity/llama")).kv_heads, 2);
  EXPECT_EQ(read("parity/qwen3").architecture->model_type, "qwen3");
  EXPECT_EQ(attention(read("parity/qwen3")).head_dim, 32);

  const ModelConfig moe = read("parity/qwen3_moe");
  EXPECT_EQ(experts(moe).experts, 8);
  EXPECT_TRUE(experts(moe).normalized_weights);
  EXPECT_EQ(sparse_layers(moe), (std::vector<bool>{true, false, true}));
  const ModelConfig step = read("parity/qwen3_moe_unnormalised");
  EXPECT_EQ(sparse_layers(step), (std::vector<bool>{false, true}));
  EXPECT_FALSE(std::get<SparseMlpSpec>(step.layers[1].mlp).normalized_weights);
}

TEST(ModelConfig, K3_NullIsAbsent) {
  json config = llama();
  for (const char* key :
       {"rope_scaling", "head_dim", "rope_parameters", "tie_word_embeddings", "bos_token_id", "eos_token_id",
        "sliding_window", "layer_types", "quantization_config", "torch_dtype"}) {
    config[key] = nullptr;
  }
  const ModelConfig parsed = parse(config);
  EXPECT_EQ(attention(parsed).head_dim, 16);
  EXPECT_EQ(parsed.ropes[0].type, RopeType::plain);
  EXPECT_FALSE(parsed.tie_word_embeddings);
  EXPECT_FALSE(parsed.bos_token_id.has_value());
  EXPECT_TRUE(parsed.eos_token_ids.empty());
  EXPECT_FALSE(parsed.dtype.has_value());
  expect_value_refused("rms_norm_eps", nullptr, ErrorCode::format, "has no rms_norm_eps");
}

TEST(ModelConfig, K3_RopeTypesInBothSpellings) {
  for (const char* key : {"type", "rope_type"}) {
    for (const char* place : {"rope_scaling", "rope_parameters"}) {
      SCOPED_TRACE(str(place, ".", key));
      const ModelConfig linear = parse(with(llama(), place, {{key, "linear"}, {"factor", 4}}));
      EXPECT_EQ(linear.ropes[0].type, RopeType::linear);
      EXPECT_EQ(linear.ropes[0].factor, 4.0);
      EXPECT_EQ(parse(with(llama(), place, {{key, "default"}})).ropes[0].type, RopeType::plain);
      for (const char* type : {"proportional", "mrope"}) {
        expect_value_refused(place, {{key, type}, {"factor", 4}}, ErrorCode::not_supported,
                             str("rope type '", type, "' is not supported yet"));
      }
    }
  }
  EXPECT_EQ(parse(with(llama(), "rope_scaling", {{"type", "linear"}, {"rope_type", "linear"}, {"factor", 2}}))
                .ropes[0]
                .type,
            RopeType::linear);
}

TEST(ModelConfig, RopeSettingsMustAgree) {
  json config = with(llama(), "rope_parameters", {{"rope_theta", 10000}, {"rope_type", "default"}});
  EXPECT_EQ(parse(config).ropes[0].theta, 10000.0);
  config["rope_theta"] = 5e5;
  expect_refused(config, ErrorCode::format, "rope setting rope_theta is both 10000 and 500000.0");
  config.erase("rope_theta");
  config["rope_parameters"]["rope_theta"] = 1e6;
  EXPECT_EQ(parse(config).ropes[0].theta, 1e6);
  expect_value_refused("rope_scaling", {{"type", "linear"}, {"rope_type", "llama3"}, {"factor", 2}},
                       ErrorCode::format, "rope setting rope_type is both ");
  expect_value_refused("rope_scaling", {{"factor", 2}}, ErrorCode::format, "have a factor but no rope_type");
  expect_value_refused("rope_scaling", "linear", ErrorCode::format,
                       "rope_scaling is \"linear\", expected an object");
}

TEST(ModelConfig, RopeSettingsMustBeComplete) {
  const json full = {{"rope_type", "llama3"},
                     {"factor", 8},
                     {"low_freq_factor", 1},
                     {"high_freq_factor", 4},
                     {"original_max_position_embeddings", 8192}};
  EXPECT_EQ(parse(with(llama(), "rope_scaling", full)).ropes[0].type, RopeType::llama3);
  for (const char* key :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    json part = full;
    part.erase(key);
    expect_value_refused("rope_scaling", part, ErrorCode::format, str("has no ", key));
    part[key] = 0;
    expect_value_refused("rope_scaling", part, ErrorCode::format, str(key, " is 0, expected"));
  }
  expect_value_refused("rope_scaling", with(full, "high_freq_factor", 1), ErrorCode::format,
                       "high_freq_factor is 1, expected more than low_freq_factor 1");
  expect_value_refused("rope_scaling", {{"type", "linear"}}, ErrorCode::format, "has no factor");
  expect_value_refused("rope_theta", 0, ErrorCode::format, "rope_theta is 0, expected a number above 0");
}

TEST(ModelConfig, RefusesOtherArchitecturesByName) {
  expect_value_refused("model_type", "mamba2", ErrorCode::not_supported,
                       "model_type 'mamba2' is not supported yet");
  expect_value_refused("model_type", "gpt2", ErrorCode::not_supported,
                       "expected one of gemma3_text, gpt_oss, granite, ");
  expect_value_refused("model_type", nullptr, ErrorCode::format, "has no model_type");
  MIXTAPE_EXPECT_ERROR(parse(json::array()), ErrorCode::format, "found array, expected an object");
}

TEST(ModelConfig, RefusesSettingsThatChangeTheModel) {
  constexpr auto kUnsupported = ErrorCode::not_supported;
  expect_value_refused("hidden_act", "gelu", kUnsupported, "hidden_act 'gelu' is not supported yet");
  expect_value_refused("use_sliding_window", true, kUnsupported, "use_sliding_window = true");
  expect_value_refused("sliding_window", 4096, kUnsupported, "sliding_window is not supported yet");
  expect_value_refused("layer_types", {"full_attention", "sliding_attention"}, kUnsupported,
                       "layer type \"sliding_attention\"");
  expect_value_refused("final_logit_softcapping", 30.0, kUnsupported, "final_logit_softcapping");
  expect_value_refused("quantization_config", {{"quant_method", "gptq"}}, kUnsupported,
                       "quant_method \"gptq\"");
  expect_value_refused("torch_dtype", "float8_e4m3fn", kUnsupported, "torch_dtype 'float8_e4m3fn'");
  expect_refused(with(qwen3_moe(), "mlp_bias", true), kUnsupported, "mlp_bias = true");
  expect_refused(with(qwen3_moe(), "qkv_bias", true), kUnsupported, "qkv_bias = true");
  expect_refused(with(qwen3_moe(), "use_qk_norm", false), kUnsupported, "use_qk_norm = false");

  EXPECT_TRUE(mlp_bias(parse(with(llama(), "mlp_bias", true))));
  EXPECT_TRUE(attention(parse(with(qwen3_moe(), "attention_bias", true))).qkv_bias);
  // A window that is stated but switched off, and MLX's own quantization object.
  json config = with(qwen3_moe(), "sliding_window", 4096);
  config["use_sliding_window"] = false;
  config["quantization_config"] = {{"group_size", 64}, {"bits", 4}};
  EXPECT_EQ(experts(parse(config)).experts, 8);
}

TEST(ModelConfig, RefusesBadSizes) {
  constexpr auto kFormat = ErrorCode::format;
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"}) {
    expect_value_refused(key, nullptr, kFormat, str("has no ", key));
    for (const json& value : {json(0), json(-1), json(1.5), json("64"), json(1ll << 31), json(true)}) {
      expect_value_refused(key, value, kFormat, str(key, " is ", value.dump(), ", expected a whole number"));
    }
  }
  expect_value_refused("num_key_value_heads", 3, kFormat, "expected a multiple of num_key_value_heads 3");
  expect_value_refused("hidden_size", 66, kFormat, "hidden_size 66 is no multiple of num_attention_heads 4");
  expect_value_refused("head_dim", 15, kFormat, "head_dim is 15, expected an even number");
  expect_value_refused("rms_norm_eps", 0, kFormat, "rms_norm_eps is 0, expected a number above 0");
  expect_value_refused("rms_norm_eps", "1e-6", kFormat, "rms_norm_eps is \"1e-6\"");
  expect_value_refused("tie_word_embeddings", 1, kFormat, "tie_word_embeddings is 1, expected true or false");
  expect_value_refused("partial_rotary_factor", 1.5, kFormat, "partial_rotary_factor is 1.5");
  expect_value_refused("partial_rotary_factor", 0.2, kFormat, "it rotates 3, expected an even number");
  EXPECT_EQ(attention(parse(with(llama(), "num_key_value_heads", nullptr))).kv_heads, 4);
  EXPECT_EQ(parse(with(llama(), "partial_rotary_factor", 0.25)).ropes[0].rotary_dims(16), 4);
}

TEST(ModelConfig, TokenIdsLieInTheVocabulary) {
  EXPECT_EQ(parse(with(llama(), "eos_token_id", {3, 99})).eos_token_ids, (std::vector<std::int64_t>{3, 99}));
  EXPECT_EQ(parse(with(llama(), "bos_token_id", 0)).bos_token_id, 0);
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    expect_value_refused(key, 100, ErrorCode::format,
                         str(key, " is 100, expected a whole number from 0 to 99"));
    expect_value_refused(key, -1, ErrorCode::format, str(key, " is -1"));
  }
  expect_value_refused("eos_token_id", {3, 100}, ErrorCode::format, "eos_token_id is 100");
}

TEST(ModelConfig, MistralsWindow) {
  const json mistral = with(llama(), "model_type", "mistral");
  EXPECT_EQ(attention(parse(mistral)).window, 4096);  // Hugging Face's default
  EXPECT_EQ(attention(parse(with(mistral, "sliding_window", nullptr))).window, 0);
  EXPECT_EQ(attention(parse(with(mistral, "sliding_window", 9))).window, 9);
  expect_refused(with(mistral, "sliding_window", 0), ErrorCode::format, "sliding_window is 0");
  expect_refused(with(mistral, "attention_bias", true), ErrorCode::not_supported, "attention_bias = true");
}

TEST(ModelConfig, Experts) {
  json local = qwen3_moe();
  local.erase("num_experts");
  expect_refused(local, ErrorCode::format, "has no num_local_experts");
  local["num_local_experts"] = 8;
  EXPECT_EQ(experts(parse(local)).experts, 8);
  local["num_experts"] = 4;
  expect_refused(local, ErrorCode::format, "num_experts is 4 but num_local_experts is 8");
  expect_refused(with(qwen3_moe(), "num_experts_per_tok", 9), ErrorCode::format,
                 "num_experts_per_tok is 9, expected a whole number from 1 to 8");
  expect_refused(with(qwen3_moe(), "moe_intermediate_size", nullptr), ErrorCode::format, "has no moe_inter");
  expect_refused(with(qwen3_moe(), "decoder_sparse_step", 0), ErrorCode::format, "decoder_sparse_step is 0");
  expect_refused(with(qwen3_moe(), "mlp_only_layers", {2}), ErrorCode::format, "mlp_only_layers is 2");
  const ModelConfig none = parse(with(qwen3_moe(), "num_experts", 0));
  EXPECT_EQ(sparse_layers(none), (std::vector<bool>{false, false}));
}

TEST(ModelConfig, RopeFrequencies) {
  ModelConfig config = parse(llama());
  const std::vector<float> plain = rope_inverse_frequencies(config.ropes[0], 16);
  ASSERT_EQ(plain.size(), 8u);
  EXPECT_EQ(plain[0], 1.0f);
  EXPECT_EQ(plain[4], 0.01f);

  config.ropes[0].type = RopeType::linear;
  config.ropes[0].factor = 4.0;
  EXPECT_EQ(rope_inverse_frequencies(config.ropes[0], 16)[4], 0.0025f);

  config.ropes[0].type = RopeType::plain;
  config.ropes[0].partial_rotary_factor = 0.5;
  EXPECT_EQ(rope_inverse_frequencies(config.ropes[0], 16), (std::vector<float>{1.0f, 0.1f, 0.01f, 0.001f}));
}

TEST(ModelConfig, RopeFrequenciesOfLlama3) {
  const ModelConfig config =
      parse(read_json("tests/data/parity/llama_tied_bias_rope3/config.json"));  // factor 8, 1 to 4, length 32
  const std::vector<float> f = rope_inverse_frequencies(config.ropes[0], 16);
  ASSERT_EQ(f.size(), 8u);
  EXPECT_EQ(f[0], 1.0f);                            // wavelength 6.28 < 32/4
  const double second = std::pow(10000.0, -0.125);  // wavelength 19.87: between 8 and 32
  const double s = (32.0 * second / (2.0 * std::numbers::pi) - 1.0) / 3.0;
  EXPECT_EQ(f[1], static_cast<float>((1.0 - s) * second / 8.0 + s * second));
  EXPECT_EQ(f[2], static_cast<float>(0.1 / 8.0));  // wavelength 62.8 > 32
}

// Transformers' logits and gradients with these settings are tests/data/parity's *_yarn.
TEST(ModelConfig, Yarn) {
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 64}};
  const auto rope_of = [&](const json& more) {
    json scaling = yarn;
    scaling.update(more);
    return parse(with(llama(), "rope_scaling", scaling)).ropes[0];
  };
  const double usual = 0.1 * std::log(4.0) + 1.0;
  EXPECT_EQ(rope_of(json::object()).attention_factor, usual);
  EXPECT_EQ(rope_of({{"attention_factor", 0.5}}).attention_factor, 0.5);
  EXPECT_EQ(rope_of({{"mscale", 1.0}, {"mscale_all_dim", 1.0}}).attention_factor, 1.0);
  EXPECT_EQ(rope_of({{"mscale", 2.0}, {"mscale_all_dim", 0}}).attention_factor, usual);
  json unstated = with(llama(), "rope_scaling", with(yarn, "original_max_position_embeddings", nullptr));
  unstated["max_position_embeddings"] = 256;
  EXPECT_EQ(parse(unstated).ropes[0].original_max_position_embeddings, 256);
  unstated.erase("max_position_embeddings");
  expect_refused(unstated, ErrorCode::format, "has no original_max_position_embeddings");
  expect_value_refused("rope_scaling", with(yarn, "beta_fast", 0.5), ErrorCode::format,
                       "beta_fast is 0.5, expected beta_slow 1 or more");
  expect_value_refused("rope_scaling", with(yarn, "extrapolation_factor", 0.5), ErrorCode::not_supported,
                       "rope setting 'extrapolation_factor' may change the model and is not supported yet");

  const std::vector<float> f = rope_inverse_frequencies(rope_of(json::object()), 16);
  EXPECT_EQ(f[0], 1.0f);  // turns 64 / 2 pi = 10 times: between the bounds 32 and 1
  const double second = std::pow(10000.0, -0.125);
  EXPECT_EQ(f[1], static_cast<float>(second / 4.0 / 3.0 + second * (1.0 - 1.0 / 3.0)));  // pairs 0 to 3
  EXPECT_EQ(f[3], static_cast<float>(std::pow(10000.0, -0.375) / 4.0));
}

TEST(ModelConfig, YarnIsWrittenForMlx) {
  const auto written = [](const json& more) {
    json scaling = {{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 64}};
    scaling.update(more);
    return to_mlx_config(with(llama(), "rope_parameters", scaling), json::object(), "config.json");
  };
  EXPECT_FALSE(written(json::object())["rope_scaling"].contains("mscale"));
  const json out = written({{"mscale", 1.0}, {"mscale_all_dim", 1.0}});
  EXPECT_EQ(out["rope_scaling"]["mscale"], 0.0);  // mlx-lm's own default is 1
  EXPECT_EQ(parse(out).ropes[0].attention_factor, 1.0);
  MIXTAPE_EXPECT_ERROR(written({{"truncate", false}}), ErrorCode::not_supported,
                       "truncate = false, mlx-lm has whole pairs between yarn's bounds");
  MIXTAPE_EXPECT_ERROR(written({{"factor", 1}, {"attention_factor", 2.0}}), ErrorCode::not_supported,
                       "attention_factor of yarn is 2, mlx-lm has 1");
  const json moe = with(qwen3_moe(), "rope_scaling", {{"rope_type", "linear"}, {"factor", 4}});
  MIXTAPE_EXPECT_ERROR(to_mlx_config(moe, json::object(), "config.json"), ErrorCode::not_supported,
                       "rope type is linear, which mlx-lm has not in qwen3_moe");
}

json qwen3_next() {
  json config = qwen3_moe();
  config.update(
      json::parse(R"({"model_type":"qwen3_next","num_hidden_layers":4,"shared_expert_intermediate_size":24,
    "linear_num_key_heads":2,"linear_num_value_heads":4,"linear_key_head_dim":16,"linear_value_head_dim":8,
    "linear_conv_kernel_dim":4})"));
  return config;
}

std::vector<bool> delta_nets(const ModelConfig& config) {
  std::vector<bool> found;
  for (const LayerSpec& layer : config.layers)
    found.push_back(std::holds_alternative<DeltaNetSpec>(layer.mixer));
  return found;
}

TEST(ModelConfig, Qwen3NextMixesDeltaNetsAndGatedAttention) {
  const ModelConfig config = parse(qwen3_next());
  EXPECT_EQ(delta_nets(config), (std::vector<bool>{true, true, true, false}));
  const auto& d = std::get<DeltaNetSpec>(config.layers[0].mixer);
  EXPECT_EQ(d.key_heads, 2);
  EXPECT_EQ(d.value_heads, 4);
  EXPECT_EQ(d.channels(), 2 * 2 * 16 + 4 * 8);
  const auto& a = std::get<AttentionSpec>(config.layers[3].mixer);
  EXPECT_TRUE(a.output_gate && a.qk_norms);
  EXPECT_EQ(config.ropes[0].rotary_dims(a.head_dim), 8);  // a quarter of 32 where nothing is said
  EXPECT_EQ(experts(config).shared_width, 24);
  EXPECT_EQ(delta_nets(parse(with(qwen3_next(), "full_attention_interval", 2))),
            (std::vector<bool>{true, false, true, false}));
  const json types = {"full_attention", "linear_attention", "linear_attention", "full_attention"};
  EXPECT_EQ(delta_nets(parse(with(qwen3_next(), "layer_types", types))),
            (std::vector<bool>{false, true, true, false}));
  EXPECT_EQ(parse(with(qwen3_next(), "partial_rotary_factor", 0.5)).ropes[0].partial_rotary_factor, 0.5);
}

TEST(ModelConfig, Qwen3NextRefusesByName) {
  expect_refused(with(qwen3_next(), "layer_types", {"full_attention"}), ErrorCode::format,
                 "expected one type for each layer");
  expect_refused(with(qwen3_next(), "layer_types", json(4, "sliding_attention")), ErrorCode::not_supported,
                 "layer type \"sliding_attention\"");
  expect_refused(with(qwen3_next(), "linear_num_value_heads", 3), ErrorCode::format,
                 "linear_num_value_heads is 3, expected a multiple of linear_num_key_heads 2");
  expect_refused(with(qwen3_next(), "linear_conv_kernel_dim", 17), ErrorCode::format,
                 "linear_conv_kernel_dim is 17");
  expect_refused(with(qwen3_next(), "linear_key_head_dim", nullptr), ErrorCode::format,
                 "linear_key_head_dim");
}

TEST(ModelConfig, Qwen3NextIsWrittenForMlxWithItsInterval) {
  const json out = to_mlx_config(qwen3_next(), json::object(), "config.json");
  EXPECT_EQ(out["full_attention_interval"], 4);
  EXPECT_EQ(out["partial_rotary_factor"], 0.25);
  EXPECT_EQ(out["head_dim"], 32);
  const json types = {"full_attention", "linear_attention", "linear_attention", "full_attention"};
  MIXTAPE_EXPECT_ERROR(to_mlx_config(with(qwen3_next(), "layer_types", types), json::object(), "config.json"),
                       ErrorCode::not_supported,
                       "layer 1 is linear attention, mlx-lm has full attention where");
}

TEST(ModelConfig, MlxConfigKeepsKeysAndAddsOlderSpellings) {
  const json source = read_json("tests/data/parity/llama_tied_bias_rope3/config.json");
  const json quantization = {{"group_size", 64}, {"bits", 4}, {"mode", "affine"}, {"lm_head", false}};
  const json out = to_mlx_config(source, quantization, "config.json");
  for (const auto& [key, value] : source.items()) EXPECT_EQ(out.at(key), value) << key;
  EXPECT_EQ(out["quantization"], quantization);
  EXPECT_EQ(out["quantization_config"], quantization);
  EXPECT_EQ(out["rope_theta"], 10000.0);
  EXPECT_EQ(out["rope_scaling"]["type"], "llama3");
  EXPECT_EQ(out["rope_scaling"]["rope_type"], "llama3");
  EXPECT_EQ(out["rope_scaling"]["original_max_position_embeddings"], 32);
  EXPECT_EQ(parse(out).ropes[0].factor, 8.0);

  const json moe =
      to_mlx_config(read_json("tests/data/parity/qwen3_moe/config.json"), quantization, "config.json");
  EXPECT_TRUE(moe.contains("rope_scaling") && moe["rope_scaling"].is_null());
  EXPECT_EQ(moe["num_experts"], 8);
  EXPECT_EQ(moe["num_local_experts"], 8);

  json absent = llama();
  absent["head_dim"] = nullptr;
  const json filled = to_mlx_config(absent, quantization, "config.json");
  EXPECT_EQ(filled["head_dim"], 16);
  EXPECT_EQ(filled["tie_word_embeddings"], false);
}

TEST(ModelConfig, MlxConfigRefusesWhatMlxCannotExpress) {
  MIXTAPE_EXPECT_ERROR(
      to_mlx_config(with(qwen3_moe(), "attention_bias", true), json::object(), "config.json"),
      ErrorCode::not_supported, "attention_bias = true, mlx-lm has no biases in qwen3_moe");
  MIXTAPE_EXPECT_ERROR(
      to_mlx_config(with(llama(), "partial_rotary_factor", 0.5), json::object(), "config.json"),
      ErrorCode::not_supported, "partial_rotary_factor is 0.5");
  EXPECT_EQ(to_mlx_config(with(llama(), "attention_bias", true), json::object(), "c")["attention_bias"],
            true);
}

}  // namespace
}  // namespace mixtape
