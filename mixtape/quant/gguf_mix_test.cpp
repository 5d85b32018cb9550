#include "mixtape/quant/gguf_mix.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mixtape/testing/check_op.h"
#include "mixtape/testing/tiny_model_json.h"

namespace mixtape {
namespace {

struct Sizes {
  const char* model_type = "llama";
  int layers = 32, heads = 32, kv_heads = 8, experts = 3;
  bool tied = false;
};

ModelConfig config_of(const Sizes& s) {
  nlohmann::json json = nlohmann::json::parse(testing::tiny_model_json(s.model_type));
  for (const char* key : {"hidden_size", "intermediate_size"}) json[key] = 256;
  json["num_hidden_layers"] = s.layers;
  json["num_attention_heads"] = s.heads;
  json["num_key_value_heads"] = s.kv_heads;
  if (json.contains("num_experts")) json.update({{"num_experts", s.experts}, {"moe_intermediate_size", 256}});
  json["tie_word_embeddings"] = s.tied;
  return ModelConfig::parse(json, "config");
}

// The types of a module in all layers, a letter for each: 0 Q4_0, 1 Q4_1, and of Q2_K to Q6_K and Q8_0 the digit.
std::string types(const Sizes& sizes, const std::string& mix, const std::string& module,
                  bool has_importance = false) {
  const QuantizationOptions o = mix_options(gguf_mix(mix), config_of(sizes), has_importance);
  std::string all;
  for (int i = 0; i < sizes.layers; ++i) {
    const BlockType type = o.modules.at(str("model.layers.", i, ".", module))->block;
    all += type == BlockType::q4_0 ? '0' : type == BlockType::q4_1 ? '1' : block_format(type).name[1];
  }
  return all;
}

std::string end_type(const Sizes& sizes, const std::string& mix, const std::string& module) {
  return mix_options(gguf_mix(mix), config_of(sizes), false).modules.at(module)->name();
}

const std::string kQ = "self_attn.q_proj", kK = "self_attn.k_proj", kV = "self_attn.v_proj",
                  kO = "self_attn.o_proj", kDown = "mlp.down_proj", kUp = "mlp.up_proj";

std::string times(int n, char c) { return std::string(static_cast<std::size_t>(n), c); }

// A third of the layers, and both ends.
TEST(GgufMix, MiddleMixesRaiseValuesAndDownHereAndThere) {
  const std::string spread =
      "6666"
      "446446446446446446446446"
      "6666";
  EXPECT_EQ(types({}, "q4_k_m", kV), spread);
  EXPECT_EQ(types({}, "q4_k_m", kDown), spread);
  EXPECT_EQ(types({}, "q4_k_m", kUp), times(32, '4'));
  EXPECT_EQ(types({}, "q4_k_m", kO), times(32, '4'));
  EXPECT_EQ(types({.layers = 8}, "q5_k_m", kDown), "65565566");
}

TEST(GgufMix, MiddleAndLargeMixesRaiseSharedMatrices) {
  const Sizes phi{.model_type = "phi3"};
  const std::string shared = "self_attn.qkv_proj", both = "mlp.gate_up_proj";
  EXPECT_EQ(types(phi, "q3_k_m", shared), times(32, '4'));
  EXPECT_EQ(types(phi, "q3_k_l", shared), times(32, '4'));
  EXPECT_EQ(types(phi, "q4_k_m", shared), times(32, '5'));
  EXPECT_EQ(types(phi, "q5_k_m", shared), times(32, '6'));
  EXPECT_EQ(types(phi, "q4_k_s", shared), times(32, '4'));
  EXPECT_EQ(types(phi, "q4_k_m", both), times(32, '4'));
}

TEST(GgufMix, SmallMixesRaiseTheFirstLayers) {
  EXPECT_EQ(types({}, "q4_k_s", kV), times(4, '5') + times(28, '4'));
  EXPECT_EQ(types({.layers = 16}, "q4_k_s", kDown), times(2, '5') + times(14, '4'));
  EXPECT_EQ(types({}, "q3_k_m", kV), times(2, '5') + times(30, '4'));
  EXPECT_EQ(types({}, "q3_k_m", kDown), times(2, '5') + times(30, '4'));
  EXPECT_EQ(types({}, "q3_k_m", kO), times(32, '4'));
  EXPECT_EQ(types({}, "q3_k_l", kV) + types({}, "q3_k_l", kDown), times(64, '5'));
  EXPECT_EQ(types({}, "q3_k_s", kV) + types({}, "q3_k_s", kO), times(64, '3'));
}

TEST(GgufMix, TwoBitsKeepWhatIsSmall) {
  EXPECT_EQ(types({}, "q2_k", kV), times(32, '4'));
  EXPECT_EQ(types({.kv_heads = 16}, "q2_k", kV), times(32, '3'));
  EXPECT_EQ(types({}, "q2_k", kDown) + types({}, "q2_k", kO), times(64, '3'));
  EXPECT_EQ(types({}, "q2_k", kQ) + types({}, "q2_k", kK), times(64, '2'));
}

TEST(GgufMix, ImportanceRaisesTheFirstDownsOfPlainTypes) {
  EXPECT_EQ(types({.layers = 16}, "q4_0", kDown), times(16, '0'));
  EXPECT_EQ(types({.layers = 16}, "q4_0", kDown, true), "11" + times(14, '0'));
  EXPECT_EQ(types({.layers = 16}, "q4_1", kDown, true), times(16, '1'));
}

TEST(GgufMix, ModelsOfFewKeysOrManyExperts) {
  EXPECT_EQ(types({.layers = 80, .heads = 64}, "q4_k_s", kV), times(80, '5'));
  const Sizes mixtral{.model_type = "qwen3_moe", .layers = 4, .experts = 8};
  EXPECT_EQ(types(mixtral, "q2_k", kV) + types(mixtral, "q2_k", kK), times(8, '8'));
  EXPECT_EQ(types(mixtral, "q4_k_m", kO), times(4, '5'));
  EXPECT_EQ(types(mixtral, "q3_k_l", kO), times(4, '3'));
  EXPECT_EQ(types(mixtral, "q4_k_m", "mlp.switch_mlp.down_proj"), "4466");
  EXPECT_EQ(
      mix_options(gguf_mix("q4_k_m"), config_of(mixtral), false).modules.count("model.layers.0.mlp.gate"),
      0u);
}

TEST(GgufMix, OutputsHaveSixOrEightBits) {
  EXPECT_EQ(end_type({}, "q2_k", "lm_head"), "Q6_K");
  EXPECT_EQ(end_type({}, "q2_k", "model.embed_tokens"), "Q2_K");
  EXPECT_EQ(end_type({.tied = true}, "q4_0", "model.embed_tokens"), "Q6_K");
  EXPECT_EQ(end_type({.tied = true}, "q8_0", "model.embed_tokens"), "Q8_0");
}

TEST(GgufMix, NamesAndNumbers) {
  for (const GgufMix& mix : gguf_mixes()) EXPECT_EQ(gguf_mix(mix.name).file_type, mix.file_type);
  EXPECT_EQ(gguf_mix("q4_k_m").file_type, 15u);
  MIXTAPE_EXPECT_ERROR(gguf_mix("q4_k"), ErrorCode::invalid_argument,
                       "is 'q4_k', expected a name such as q4_k_m");
}

}  // namespace
}  // namespace mixtape
