#include "mixtape/quant/quantization_plan.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "mixtape/quant/plan_file.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using ::testing::ElementsAre;

// Names and shapes without values.
class Shapes final : public ModelSource {
 public:
  explicit Shapes(std::map<std::string, Shape> shapes, bool tied = false) : shapes_(std::move(shapes)) {
    config_.tie_word_embeddings = tied;
    config_.dtype = DType::bf16;
  }
  nlohmann::json json = nlohmann::json::object();

  std::string where() const override { return "model"; }
  const nlohmann::json& config_json() const override { return json; }
  ModelConfig config() const override { return config_; }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, shape] : shapes_) names.push_back(name);
    return names;
  }
  bool has(const std::string& name) const override { return shapes_.contains(name); }
  Shape shape(const std::string& name) const override { return shapes_.at(name); }
  DType stored_dtype(const std::string&) const override { return DType::bf16; }
  Buffer load(const std::string&, DType, const Device&) const override { return {}; }
  nlohmann::json tokenizer_json() const override { return {}; }
  nlohmann::json tokenizer_config_json() const override { return {}; }
  std::map<std::string, std::string> extra_files() const override { return {}; }

 private:
  std::map<std::string, Shape> shapes_;
  ModelConfig config_;
};

// What the shapes say of a model made of all of them.
std::vector<ModelTensor> tensors_of(const Shapes& source, bool tied) {
  std::vector<ModelTensor> tensors;
  for (const std::string& name : source.names()) {
    const bool is_copy = tied && name == "lm_head.weight";
    const bool is_router = name.ends_with("gate.weight");
    const bool is_matrix = source.shape(name).rank() > 1 && name.find("conv1d") == std::string::npos;
    const TensorKind kind = is_router   ? TensorKind::router
                            : is_matrix ? TensorKind::matrix
                                        : TensorKind::vector;
    if (!is_copy) tensors.push_back({name, "", source.shape(name), kind});
  }
  return tensors;
}

QuantizationPlan plan_of(const Shapes& source, const QuantizationOptions& options) {
  return plan_quantization(source, tensors_of(source, source.config().tie_word_embeddings), options);
}

std::vector<std::string> quantized(const QuantizationPlan& plan) {
  std::vector<std::string> paths;
  for (const PlannedModule& m : plan.modules) {
    if (m.stored) paths.push_back(str(m.path, " ", m.stored->bits, "/", m.stored->group_size));
  }
  return paths;
}

std::vector<std::string> skipped(const QuantizationPlan& plan) {
  std::vector<std::string> paths;
  for (const PlannedModule& m : plan.skipped()) paths.push_back(m.path + ": " + m.reason);
  return paths;
}

const Shapes kMoe({{"model.embed_tokens.weight", {100, 64}},
                   {"model.layers.10.mlp.gate.weight", {8, 64}},
                   {"model.layers.9.mlp.shared_expert_gate.weight", {1, 64}},
                   {"model.layers.9.mlp.switch_mlp.up_proj.weight", {8, 96, 64}},
                   {"model.layers.9.linear_attn.conv1d.weight", {64, 1, 64}},
                   {"model.layers.9.linear_attn.A_log", {64}},
                   {"model.layers.9.self_attn.q_proj.bias", {64}},
                   {"model.norm.weight", {64}},
                   {"lm_head.weight", {100, 64}}});

TEST(QuantizationPlan, MatricesButNoRoutersNormsOrConvolutions) {
  const QuantizationPlan plan = plan_of(kMoe, {.params = {4, 32}, .modules = {}});
  EXPECT_THAT(quantized(plan), ElementsAre("model.embed_tokens 4/32",
                                           "model.layers.9.mlp.switch_mlp.up_proj 4/32", "lm_head 4/32"));
  EXPECT_THAT(skipped(plan), ElementsAre("model.layers.9.mlp.shared_expert_gate: router",
                                         "model.layers.10.mlp.gate: router"));
  EXPECT_THAT(plan.others,
              ElementsAre("model.layers.9.linear_attn.A_log", "model.layers.9.self_attn.q_proj.bias"));
  EXPECT_EQ(plan.config.modules, (std::map<std::string, StoredAs>{
                                     {"model.layers.9.mlp.shared_expert_gate", std::nullopt},
                                     {"model.layers.10.mlp.gate", std::nullopt},
                                 }));
  EXPECT_FALSE(plan.find("model.norm")->stored);
  EXPECT_EQ(plan.find("model.none"), nullptr);
}

TEST(QuantizationPlan, RoutersInEightBits) {
  const QuantizationPlan plan = plan_of(kMoe, {.params = {4, 32}, .modules = {}, .quantize_routers = true});
  EXPECT_EQ(plan.find("model.layers.10.mlp.gate")->stored, StoredAs(AffineParams{8, 64}));
  EXPECT_EQ(plan.config.modules.at("model.layers.10.mlp.gate"), StoredAs(AffineParams{8, 64}));
  EXPECT_THAT(skipped(plan), ElementsAre());
}

TEST(QuantizationPlan, H13_InputSizeThatIsNoMultipleOfTheGroup) {
  const Shapes odd({{"a.weight", {8, 4304}},
                    {"b.weight", {8, 112}},
                    {"c.weight", {8, 96}},
                    {"d.weight", {8, 172}},
                    {"e.weight", {4, 4}},
                    {"f.weight", {8, 128}}});
  const QuantizationPlan plan = plan_of(odd, {.params = {4, 64}, .modules = {{"c", AffineParams{5, 32}}}});
  EXPECT_THAT(quantized(plan), ElementsAre("c 5/32", "f 4/64"));
  EXPECT_THAT(
      skipped(plan),
      ElementsAre("a: input size 4304 is not a multiple of 64", "b: input size 112 is not a multiple of 64",
                  "d: input size 172 is not a multiple of 64", "e: input size 4 is not a multiple of 64"));
  const QuantizationPlan smaller = plan_of(odd, {.params = {4, 128}, .modules = {}, .smaller_groups = true});
  EXPECT_THAT(quantized(smaller), ElementsAre("c 4/32", "f 4/128"));
  EXPECT_EQ(smaller.config.modules.at("c"), StoredAs(AffineParams{4, 32}));
  MIXTAPE_EXPECT_ERROR(plan_of(odd, {.params = {4, 64}, .modules = {{"d", AffineParams{4, 64}}}}),
                       ErrorCode::invalid_argument, "'d': rows have 172 weights");
}

TEST(QuantizationPlan, K4_TiedEmbeddings) {
  const std::map<std::string, Shape> shapes = {
      {"model.embed_tokens.weight", {100, 64}}, {"lm_head.weight", {100, 64}}, {"model.norm.weight", {64}}};
  const Shapes tied(shapes, true);
  const auto plan = [&](std::map<std::string, StoredAs> modules) {
    return plan_of(tied, {.params = {4, 64}, .modules = std::move(modules)});
  };
  const AffineParams six = {6, 64}, eight = {8, 64};
  EXPECT_THAT(quantized(plan({})), ElementsAre("model.embed_tokens 4/64"));
  EXPECT_THAT(quantized(plan({{"lm_head", six}})), ElementsAre("model.embed_tokens 6/64"));
  EXPECT_THAT(quantized(plan({{"lm_head", six}, {"model.embed_tokens", six}})),
              ElementsAre("model.embed_tokens 6/64"));
  EXPECT_FALSE(plan({{"lm_head", six}, {"model.embed_tokens", six}}).unties_embeddings);

  const QuantizationPlan untied = plan({{"lm_head", eight}, {"model.embed_tokens", six}});
  EXPECT_TRUE(untied.unties_embeddings);
  EXPECT_THAT(quantized(untied), ElementsAre("model.embed_tokens 6/64", "lm_head 8/64"));
  EXPECT_EQ(untied.find("lm_head")->source, "model.embed_tokens.weight");
  EXPECT_EQ(untied.config.modules.at("lm_head"), StoredAs(eight));

  const QuantizationPlan half = plan({{"lm_head", std::nullopt}, {"model.embed_tokens", six}});
  EXPECT_TRUE(half.unties_embeddings);
  EXPECT_THAT(skipped(half), ElementsAre("lm_head: asked to stay in float"));
}

// "a=4" and so on, as --bits-for has them.
std::vector<ModuleRule> rules(const std::vector<std::string>& texts) {
  std::vector<ModuleRule> list;
  for (const std::string& text : texts) list.push_back(ModuleRule::parse(text, "rule"));
  return list;
}

TEST(QuantizationPlan, RulesByPattern) {
  const auto plan = [](const std::vector<std::string>& texts, std::map<std::string, StoredAs> modules = {}) {
    return plan_of(kMoe, {.params = {4, 32}, .modules = std::move(modules), .rules = rules(texts)});
  };
  const std::string up = "model.layers.9.mlp.switch_mlp.up_proj";
  // The group is that of the other modules; the later rule wins, over `modules` too.
  const QuantizationPlan later = plan({"*=3", "*proj=6", "lm_?ead=5:64"}, {{up, AffineParams{8, 64}}});
  EXPECT_THAT(quantized(later), ElementsAre("model.embed_tokens 3/32", up + " 6/32", "lm_head 5/64"));
  EXPECT_EQ(later.config.modules.at(up), StoredAs(AffineParams{6, 32}));
  EXPECT_THAT(quantized(plan({"*proj=6", "*=3"})),
              ElementsAre("model.embed_tokens 3/32", up + " 3/32", "lm_head 3/32"));
  // Routers only by a pattern of their own.
  EXPECT_THAT(quantized(plan({"*gate=8", "model.embed*=float"})),
              ElementsAre("model.layers.9.mlp.shared_expert_gate 8/32", up + " 4/32",
                          "model.layers.10.mlp.gate 8/32", "lm_head 4/32"));
  const auto refused = [&](const std::string& rule, const std::string& message) {
    MIXTAPE_EXPECT_ERROR(plan({rule}), ErrorCode::invalid_argument, message);
  };
  refused("up_proj=6", "'up_proj': matches no matrix of model, the nearest is '" + up + "'");
  refused("*.up_prj=6", "'*.up_prj': matches no matrix of model, the nearest is '" + up + "'");
  refused("model.norm=6", "'model.norm': matches no matrix of model");
  refused("lm_head=6:128", "'lm_head': rows have 64 weights");
  MIXTAPE_EXPECT_ERROR(plan_of(kMoe, {.rules = {{"lm_head", 7, 0}}}), ErrorCode::invalid_argument,
                       "bits for 'lm_head': bits is 7");
}

TEST(QuantizationPlan, RulesNameTypesOfGguf) {
  const std::string up = "model.layers.9.mlp.switch_mlp.up_proj";
  const auto stored = [&](const QuantizationOptions& options) { return *plan_of(kMoe, options).find(up); };
  EXPECT_EQ(stored({.rules = rules({"*up_proj=q4_0"})}).stored, StoredAs(BlockType::q4_0));
  EXPECT_EQ(stored({.rules = rules({"*up_proj=q4_0"})}).instead_of, std::nullopt);
  // Rows of 64 are no whole blocks of 256.
  const PlannedModule other = stored({.rules = rules({"*up_proj=Q6_K"})});
  EXPECT_EQ(other.stored, StoredAs(BlockType::q8_0));
  EXPECT_EQ(other.instead_of, StoredAs(BlockType::q6_k));
  // Beside them bits are in groups as small as GGUF's.
  EXPECT_EQ(stored({.params = BlockType::q6_k, .rules = rules({"*up_proj=5"})}).stored,
            StoredAs(AffineParams{5, 32}));
}

TEST(QuantizationPlan, RulesAreRefusedThatSayNothing) {
  for (const char* text : {"", "a", "=4", "a=", "a=x", "a=4:", "a=4:x", "a=4:64:32", "a=:64", "a=4.5",
                           "a=Float", "a=q4_x", "a=float:32", "a=99999999999"}) {
    MIXTAPE_EXPECT_ERROR(ModuleRule::parse(text, "--bits-for"), ErrorCode::invalid_argument,
                         str("--bits-for is '", text, "', expected GLOB=BITS"));
  }
  MIXTAPE_EXPECT_ERROR(ModuleRule::parse("a=7", "--bits-for"), ErrorCode::invalid_argument, "bits is 7");
  MIXTAPE_EXPECT_ERROR(ModuleRule::parse("a=0", "--bits-for"), ErrorCode::invalid_argument, "bits is 0");
  MIXTAPE_EXPECT_ERROR(ModuleRule::parse("a=4:48", "--bits-for"), ErrorCode::invalid_argument,
                       "group size is 48");
}

TEST(QuantizationPlan, K4_RulesForTiedEmbeddings) {
  const Shapes tied({{"model.embed_tokens.weight", {100, 64}}, {"model.norm.weight", {64}}}, true);
  const auto plan = [&](const std::vector<std::string>& texts, std::map<std::string, StoredAs> modules = {}) {
    return plan_of(tied, {.params = {4, 64}, .modules = std::move(modules), .rules = rules(texts)});
  };
  EXPECT_THAT(quantized(plan({"*=3", "lm_head=8"})), ElementsAre("model.embed_tokens 8/64"));
  EXPECT_THAT(quantized(plan({"lm_head=8", "model.embed_tokens=6"})), ElementsAre("model.embed_tokens 6/64"));
  const std::map<std::string, StoredAs> two = {{"lm_head", AffineParams{8, 64}},
                                               {"model.embed_tokens", AffineParams{4, 64}}};
  EXPECT_THAT(quantized(plan({"lm_head=6"}, two)), ElementsAre("model.embed_tokens 4/64", "lm_head 6/64"));
  EXPECT_THAT(quantized(plan({"*=6"}, two)), ElementsAre("model.embed_tokens 6/64"));
}

TEST(QuantizationPlan, AsAFile) {
  const auto read = [](const nlohmann::json& json, const Shapes& source) {
    const bool tied = source.config().tie_word_embeddings;
    return planned_options(json, "plan.json", tensors_of(source, tied), tied, source.where());
  };
  const QuantizationPlan plan =
      plan_of(kMoe, {.params = {4, 32}, .modules = {}, .rules = rules({"*proj=6:64"})});
  const nlohmann::json json = plan_json(plan);
  EXPECT_EQ(json["shapes"]["lm_head"], nlohmann::json({100, 64}));
  EXPECT_EQ(json["quantization"]["model.layers.10.mlp.gate"], false);
  const QuantizationPlan again = plan_of(kMoe, read(json, kMoe));
  EXPECT_EQ(again.config.defaults, plan.config.defaults);
  EXPECT_EQ(again.config.modules, plan.config.modules);
  EXPECT_EQ(plan_json(again), json);

  const Shapes tied({{"model.embed_tokens.weight", {100, 64}}}, true);
  const nlohmann::json untied = plan_json(plan_of(
      tied, {.params = {4, 64},
             .modules = {{"lm_head", AffineParams{8, 64}}, {"model.embed_tokens", AffineParams{4, 64}}}}));
  EXPECT_THAT(quantized(plan_of(tied, read(untied, tied))),
              ElementsAre("model.embed_tokens 4/64", "lm_head 8/64"));
}

TEST(QuantizationPlan, FilesOfOtherModelsAndMalformedOnes) {
  const std::vector<ModelTensor> tensors = {{"a.weight", "", {8, 64}, TensorKind::matrix},
                                            {"b.weight", "", {8, 64}, TensorKind::matrix}};
  const nlohmann::json a = {{"bits", 4}, {"group_size", 64}};
  const nlohmann::json good = {{"quantization", {{"bits", 4}, {"group_size", 64}, {"a", a}, {"b", false}}},
                               {"shapes", {{"a", {8, 64}}, {"b", {8, 64}}}}};
  const auto read = [&](const nlohmann::json& json) {
    return planned_options(json, "plan.json", tensors, false, "model");
  };
  EXPECT_EQ(read(good).modules.at("b"), std::nullopt);
  const auto refused = [&](const std::string& message, auto change) {
    nlohmann::json json = good;
    change(json);
    MIXTAPE_EXPECT_ERROR(read(json), ErrorCode::format, message);
  };
  const std::string other = "plan.json: is a plan of another model: ";
  refused(other + "'a' is [8,128], model has [8,64]", [](auto& j) { j["shapes"]["a"][1] = 128; });
  refused(other + "'a' is \"x\", model has [8,64]", [](auto& j) { j["shapes"]["a"] = "x"; });
  refused(other + "model has no 'c'; the plan has no 'b'", [](auto& j) {
    for (const char* key : {"quantization", "shapes"}) {
      j[key]["c"] = j[key]["b"];
      j[key].erase("b");
    }
  });
  refused("; and 2 more", [](auto& j) {
    for (const char* path : {"c", "d", "e", "f", "g"}) {
      j["quantization"][path] = false;
      j["shapes"][path] = {8, 64};
    }
  });
  refused("plan.json: quantization has no 'b'", [](auto& j) { j["quantization"].erase("b"); });
  refused("plan.json: shapes has no 'b'", [](auto& j) { j["shapes"].erase("b"); });
  refused("plan.json: quantization of 'a': bits is 7", [](auto& j) { j["quantization"]["a"]["bits"] = 7; });
  refused("plan.json: quantization of 'a': found bits or group_size beside mode \"q8_0\"",
          [](auto& j) { j["quantization"]["a"] = {{"mode", "q8_0"}, {"bits", 4}}; });
  refused("plan.json: expected a plan, with an object 'shapes'", [](auto& j) { j.erase("shapes"); });
  refused("plan.json: expected a plan, with an object 'quantization'",
          [](auto& j) { j["quantization"] = 4; });
  refused("plan.json: expected a plan, with an object 'quantization'", [](auto& j) { j = 4; });
}

TEST(QuantizationPlan, RefusesWhatCannotHold) {
  const auto plan = [](QuantizationOptions options) { return plan_of(kMoe, options); };
  const auto code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(plan({.params = {0, 64}, .modules = {}}), code, "bits is 0");
  MIXTAPE_EXPECT_ERROR(plan({.params = {4, 64}, .modules = {{"model.none", std::nullopt}}}), code,
                       "'model.none': model has no such module");
  MIXTAPE_EXPECT_ERROR(plan({.params = {4, 64}, .modules = {{"model.norm", AffineParams{4, 64}}}}), code,
                       "'model.norm': has shape [64], expected a matrix");
  MIXTAPE_EXPECT_ERROR(plan({.params = {4, 64}, .modules = {{"lm_head", AffineParams{4, 48}}}}), code,
                       "'lm_head': group size is 48");
  Shapes done({{"a.weight", {8, 64}}});
  done.json = {{"quantization", {{"bits", 4}, {"group_size", 64}}}};
  MIXTAPE_EXPECT_ERROR(plan_of(done, {}), ErrorCode::not_supported, "model: is quantized already");
}

TEST(QuantizationPlan, StorageSizeCountsCodesOnce) {
  const Shapes small({{"a.weight", {2, 64}}, {"norm.weight", {64}}, {"a.bias", {2}}});
  const StorageSize size =
      storage_size(small, plan_of(small, {.params = {4, 32}, .modules = {}}), DType::bf16);
  EXPECT_EQ(size.weights, 2 * 64 + 64 + 2);
  EXPECT_EQ(size.bytes, 2 * 64 / 2 + 2 * 2 * 2 * 2 + 2 * 64 + 2 * 2);
  EXPECT_DOUBLE_EQ(size.bits_per_weight(), 8.0 * static_cast<double>(size.bytes) / 194.0);
}

// A model that quantizes must load again: what it lacks is an error, what it has beside its tensors stays
// behind.
TEST(QuantizationPlan, HoldsTheFilesAgainstTheModel) {
  const Shapes source({{"a.weight", {2, 64}}, {"score.weight", {1, 64}}, {"a.k_scale", {}}});
  const std::vector<ModelTensor> a = {{"a.weight", "", {2, 64}, TensorKind::matrix}};
  const QuantizationPlan plan = plan_quantization(source, a, {});
  EXPECT_THAT(quantized(plan), ElementsAre("a 4/64"));
  EXPECT_THAT(plan.left_out, ElementsAre("a.k_scale", "score.weight"));
  EXPECT_THAT(plan.others, ElementsAre());
  const auto refused = [&](ModelTensor wanted, const std::string& message) {
    MIXTAPE_EXPECT_ERROR(plan_quantization(source, {a[0], wanted}, {}), ErrorCode::format, message);
  };
  refused({"lm_head.weight", "", {2, 64}, TensorKind::matrix}, "model: tensor 'lm_head.weight' is missing");
  refused({"score.weight", "", {2, 64}, TensorKind::matrix},
          "model: tensor 'score.weight' is [1,64], expected [2,64]");
}

}  // namespace
}  // namespace mixtape
