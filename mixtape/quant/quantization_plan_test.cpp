#include "mixtape/quant/quantization_plan.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

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
