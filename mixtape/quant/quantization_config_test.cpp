#include "mixtape/quant/quantization_config.h"

#include <nlohmann/json.hpp>

#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using nlohmann::json;

QuantizationConfig parse(const char* text) {
  return QuantizationConfig::parse(json::parse(text), "config.json");
}

TEST(QuantizationConfig, ReadsDefaultsAndModules) {
  const QuantizationConfig config = parse(R"({"group_size": 32, "bits": 3, "mode": "affine",
      "a.b": {"group_size": 64, "bits": 8}, "c": false, "d": true, "e": {"bits": 6}})");
  EXPECT_EQ(config.defaults, (AffineParams{3, 32}));
  EXPECT_EQ(*config.find_module("a.b"), StoredAs(AffineParams{8, 64}));
  EXPECT_EQ(*config.find_module("c"), StoredAs());
  EXPECT_EQ(*config.find_module("d"), StoredAs(AffineParams{3, 32}));
  EXPECT_EQ(*config.find_module("e"), StoredAs(AffineParams{6, 32}));
  EXPECT_EQ(config.find_module("f"), nullptr);
}

TEST(QuantizationConfig, WritesWhatItReads) {
  QuantizationConfig config;
  config.defaults = {5, 128};
  config.modules = {{"model.layers.0.mlp.gate", std::nullopt}, {"lm_head", AffineParams{8, 32}}};
  EXPECT_EQ(config.to_json(), json::parse(R"({"group_size": 128, "bits": 5, "mode": "affine",
      "model.layers.0.mlp.gate": false, "lm_head": {"group_size": 32, "bits": 8}})"));
  const QuantizationConfig back = QuantizationConfig::parse(config.to_json(), "x");
  EXPECT_EQ(back.defaults, config.defaults);
  EXPECT_EQ(back.modules, config.modules);
}

TEST(QuantizationConfig, RefusesWhatIsMalformed) {
  const auto format = ErrorCode::format;
  MIXTAPE_EXPECT_ERROR(parse("[]"), format, "config.json: quantization is []");
  MIXTAPE_EXPECT_ERROR(parse(R"({"bits": 4})"), format, "'group_size' is missing");
  EXPECT_EQ(parse(R"({"bits": 3, "group_size": null})").defaults, (AffineParams{3, 64}));
  MIXTAPE_EXPECT_ERROR(parse(R"({"bits": 4.5, "group_size": 64})"), format, "'bits' is 4.5");
  MIXTAPE_EXPECT_ERROR(parse(R"({"bits": 7, "group_size": 64})"), format, "bits is 7");
  MIXTAPE_EXPECT_ERROR(parse(R"({"bits": 4, "group_size": 4294967360})"), format, "group size is -1");
  MIXTAPE_EXPECT_ERROR(parse(R"({"bits": 4, "group_size": 64, "a": 3})"), format,
                       "quantization of 'a': is 3");
  MIXTAPE_EXPECT_ERROR(parse(R"({"bits": 4, "group_size": 64, "a": {"bits": 0}})"), format, "'a': bits is 0");
  MIXTAPE_EXPECT_ERROR(
      parse(R"({"bits": 4, "group_size": 64, "a": {"bits": 6, "typo": 3}})"), format,
      "config.json: quantization of 'a': found key 'typo', expected bits, group_size or mode");
  MIXTAPE_EXPECT_ERROR(parse(R"({"bits": 4, "group_size": 32, "mode": "mxfp4"})"), ErrorCode::not_supported,
                       "mode is \"mxfp4\"");
}

TEST(QuantizationConfig, BlocksAreModesOfPlansAlone) {
  QuantizationConfig config;
  config.defaults = BlockType::q4_k;
  config.modules = {{"a", WeightFormat(BlockType::q6_k)}, {"b", std::nullopt}, {"c", AffineParams{3, 32}}};
  const json object = json::parse(
      R"({"mode": "q4_k", "a": {"mode": "q6_k"}, "b": false, "c": {"group_size": 32, "bits": 3}})");
  EXPECT_EQ(config.to_json(), object);
  const QuantizationConfig back = QuantizationConfig::parse(object, "x");
  EXPECT_EQ(back.defaults, config.defaults);
  EXPECT_EQ(back.modules, config.modules);
  for (const char* text : {R"({"quantization": {"mode": "q4_k"}})",
                           R"({"quantization": {"bits": 4, "group_size": 32, "c": {"mode": "Q4_K"}}})"}) {
    MIXTAPE_EXPECT_ERROR(QuantizationConfig::find(json::parse(text), "config.json"), ErrorCode::not_supported,
                         "mode is Q4_K, expected \"affine\"");
  }
  MIXTAPE_EXPECT_ERROR(parse(R"({"bits": 4, "group_size": 16})"), ErrorCode::format,
                       "group size is 16, expected 32, 64 or 128");
}

TEST(QuantizationConfig, IsFoundInAConfig) {
  const auto find = [](const char* text) {
    return QuantizationConfig::find(json::parse(text), "config.json");
  };
  EXPECT_FALSE(find("{}"));
  EXPECT_FALSE(find(R"({"quantization": null})"));
  EXPECT_EQ(find(R"({"quantization": {"bits": 2, "group_size": 32}})")->defaults.bits, 2);
  EXPECT_EQ(find(R"({"quantization_config": {"bits": 6, "group_size": 32}})")->defaults.bits, 6);
  MIXTAPE_EXPECT_ERROR(
      find(R"({"quantization_config": {"bits": 4, "group_size": 128, "quant_method": "gptq"}})"),
      ErrorCode::not_supported, "\"gptq\"");
}

TEST(QuantizationConfig, K1_KnownRenamingsMatch) {
  const QuantizationConfig config = parse(R"({"bits": 4, "group_size": 128,
      "model.language_model.layers.0.mlp.up_proj": {"bits": 6, "group_size": 128}})");
  for (const char* path : {"language_model.model.layers.0.mlp.up_proj",
                           "model.language_model.layers.0.mlp.up_proj", "model.layers.0.mlp.up_proj"}) {
    ASSERT_NE(config.find_module(path), nullptr) << path;
    EXPECT_EQ((*config.find_module(path))->bits, 6);
    config.check_keys({"lm_head", path}, "config.json");
  }
  EXPECT_EQ(config.find_module("model.layers.1.mlp.up_proj"), nullptr);
  MIXTAPE_EXPECT_ERROR(config.check_keys({"model.layers.0.mlp.down_proj"}, "config.json"), ErrorCode::format,
                       "'model.language_model.layers.0.mlp.up_proj', but the model has no such module");
  // mlx_lm.awq writes false for modules without a weight too.
  parse(R"({"bits": 4, "group_size": 64, "model.layers.0.self_attn.rope": false})")
      .check_keys({}, "config.json");
  MIXTAPE_EXPECT_ERROR(
      parse(R"({"bits": 4, "group_size": 64, "model.a": false, "language_model.model.a": true})"),
      ErrorCode::format, "names the same module");
}

}  // namespace
}  // namespace mixtape
