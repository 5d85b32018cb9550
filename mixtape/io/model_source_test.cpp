#include "mixtape/io/model_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/expert_names.h"
#include "mixtape/io/safetensors.h"
#include "mixtape/io/safetensors_writer.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

namespace fs = std::filesystem;
using testing::TempDirectory;

constexpr const char* kMoe = "tests/data/parity/qwen3_moe";
const std::string kMlp = "model.layers.0.mlp.";

struct Tensor {
  std::string name;
  Shape shape;
  std::vector<float> values;
};

// f32 tensors in model.safetensors beside a copy of the parity model's config.json.
void write_model(const fs::path& directory, const std::vector<Tensor>& tensors,
                 const StringMap& metadata = {}) {
  std::vector<TensorSpec> specs;
  for (const Tensor& t : tensors) specs.push_back({t.name, FileDType::F32, t.shape});
  SafetensorsWriter writer(directory / "model.safetensors", specs, metadata);
  for (const Tensor& t : tensors) writer.write(t.name, std::as_bytes(std::span(t.values)));
  writer.commit();
  fs::copy_file(fs::path(kMoe) / "config.json", directory / "config.json",
                fs::copy_options::overwrite_existing);
}

std::vector<float> values_of(const ModelSource& model, const std::string& name) {
  return model.load(name, DType::f32, Device::cpu()).to_vector<float>();
}

TEST(ModelSource, ReadsARealDirectory) {
  const auto model = open_model("tests/data/stories260k");
  EXPECT_EQ(model->config().vocab_size, 512);
  const std::vector<std::string> names = model->names();
  EXPECT_EQ(names.size(), 47u);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(model->shape("model.embed_tokens.weight"), (Shape{512, 64}));
  EXPECT_EQ(model->stored_dtype("model.norm.weight"), DType::f32);
  EXPECT_EQ(model->load("model.norm.weight", DType::bf16, Device::cpu()).dtype(), DType::bf16);
  EXPECT_TRUE(model->tokenizer_json().contains("model"));
  EXPECT_EQ(model->tokenizer_config_json()["bos_token"], "<s>");
  EXPECT_EQ(model->extra_files().size(), 2u);
  EXPECT_EQ(model->extra_files().at("tokenizer.json"),
            testing::contents_of("tests/data/stories260k/tokenizer.json"));
  MIXTAPE_EXPECT_ERROR(model->shape("lm_head.weight"), ErrorCode::format,
                       "tests/data/stories260k: has no tensor 'lm_head.weight'");
}

TEST(ModelSource, StacksExpertsOfARealDirectory) {
  const auto model = open_model(kMoe);
  const std::string name = kMlp + "switch_mlp.down_proj.weight";
  EXPECT_EQ(model->shape(name), (Shape{8, 64, 96}));
  EXPECT_EQ(model->shape(kMlp + "switch_mlp.gate_proj.weight"), (Shape{8, 96, 64}));
  EXPECT_EQ(model->shape("model.layers.1.mlp.gate_proj.weight"), (Shape{160, 64}));
  for (const std::string& n : model->names()) EXPECT_EQ(n.find(".experts."), std::string::npos) << n;

  const SafetensorsFile file = SafetensorsFile::open(fs::path(kMoe) / "model.safetensors");
  const Buffer stacked = model->load(name, DType::f32, Device::cpu());
  for (std::int64_t e = 0; e < 8; ++e) {
    const std::string single = str(kMlp, "experts.", e, ".down_proj.weight");
    EXPECT_EQ(stacked.slice(e, e + 1).to_vector<float>(),
              load(single, file.at(single), DType::f32, Device::cpu()).to_vector<float>());
  }
  MIXTAPE_EXPECT_ERROR(model->load(kMlp + "experts.0.down_proj.weight", DType::f32, Device::cpu()),
                       ErrorCode::format, "is offered under its stacked name only");
}

TEST(ModelSource, SplitsStackedGateAndUp) {
  const TempDirectory directory;
  write_model(directory.path(), {{kMlp + "experts.gate_up_proj", {2, 4, 1}, {0, 1, 2, 3, 4, 5, 6, 7}},
                                 {kMlp + "experts.down_proj", {2, 1, 2}, {10, 11, 12, 13}}});
  const auto model = open_model(directory.path());
  EXPECT_EQ(model->shape(kMlp + "switch_mlp.up_proj.weight"), (Shape{2, 2, 1}));
  EXPECT_EQ(values_of(*model, kMlp + "switch_mlp.gate_proj.weight"), (std::vector<float>{0, 1, 4, 5}));
  EXPECT_EQ(values_of(*model, kMlp + "switch_mlp.up_proj.weight"), (std::vector<float>{2, 3, 6, 7}));
  EXPECT_EQ(values_of(*model, kMlp + "switch_mlp.down_proj.weight"), (std::vector<float>{10, 11, 12, 13}));
  EXPECT_EQ(model->names().size(), 3u);
}

TEST(ModelSource, RefusesIncompleteExperts) {
  const TempDirectory directory;
  const auto expect = [&](const std::vector<Tensor>& tensors, const std::string& message) {
    write_model(directory.path(), tensors);
    MIXTAPE_EXPECT_ERROR(open_model(directory.path()), ErrorCode::format, message);
  };
  const Tensor zero = {kMlp + "experts.0.up_proj.weight", {1, 2}, {1, 2}};
  expect({zero, {kMlp + "experts.2.up_proj.weight", {1, 2}, {1, 2}}},
         "expert 1 of 'model.layers.0.mlp.switch_mlp.up_proj.weight' is missing");
  expect({zero, {kMlp + "experts.1.up_proj.weight", {2, 1}, {1, 2}}}, "is F32[2,1], expert 0 is F32[1,2]");
  expect({zero, {kMlp + "experts.00.up_proj.weight", {1, 2}, {1, 2}}}, "is there twice");
  expect({zero, {kMlp + "switch_mlp.up_proj.weight", {1, 1, 2}, {1, 2}}}, "is there in two spellings");
  expect({{kMlp + "experts.gate_up_proj", {1, 3, 1}, {1, 2, 3}}}, "has shape [1,3,1], expected [E,2F,D]");
}

TEST(ModelSource, ExpertNames) {
  using Kind = ExpertName::Kind;
  EXPECT_EQ(parse_expert_name("model.layers.3.mlp.experts.12.up_proj.weight").expert, 12);
  EXPECT_EQ(parse_expert_name("model.layers.3.mlp.experts.12.up_proj.weight").stacked,
            "model.layers.3.mlp.switch_mlp.up_proj.weight");
  EXPECT_EQ(parse_expert_name("model.layers.3.mlp.experts.gate_up_proj").kind, Kind::gate_up);
  EXPECT_EQ(parse_expert_name("model.layers.3.mlp.experts.down_proj").kind, Kind::stacked);
  for (const char* plain :
       {"model.layers.3.mlp.gate.weight", "a.mlp.experts.x.up_proj.weight", "a.mlp.experts.-1.up_proj.weight",
        "a.mlp.experts.1.router.weight", "a.mlp.experts.99999999999999999999.up_proj.weight",
        "a.mlp.experts.1", "a.mlp.experts."}) {
    EXPECT_EQ(parse_expert_name(plain).kind, Kind::none) << plain;
  }
}

// A directory of these tensors, tied or not, opened.
class HeadsAndNames : public ::testing::Test {
 protected:
  std::unique_ptr<ModelSource> open(const std::vector<Tensor>& tensors, bool tied) {
    write_model(directory_.path(), tensors);
    auto config = nlohmann::json::parse(testing::contents_of(directory_ / "config.json"));
    config["tie_word_embeddings"] = tied;
    directory_.write("config.json", config.dump());
    return open_model(directory_.path());
  }
  TempDirectory directory_;
};

TEST(ModelSource, CodeOfAModelIsTakenAlong) {
  const TempDirectory directory;
  write_model(directory.path(), {{"model.norm.weight", {1}, {1}}});
  directory.write("modeling_own.py", "pass\n");
  EXPECT_EQ(open_model(directory.path())->extra_files().at("modeling_own.py"), "pass\n");
}

TEST(ModelSource, TellsOfKeysThatItPassesOver) {
  const TempDirectory directory;
  write_model(directory.path(), {{"model.norm.weight", {1}, {1}}});
  auto config = nlohmann::json::parse(testing::contents_of(directory / "config.json"));
  config.update(
      {{"a_new_key", 1}, {"partial_rotary_factor", 1.0}, {"use_cache", true}, {"z_new_key", nullptr}});
  config["other"] = false;
  directory.write("config.json", config.dump());
  EXPECT_EQ(
      open_model(directory.path())->notices(),
      (std::vector<std::string>{"keys of config.json that are not known are passed over: a_new_key, other"}));
}

TEST(ModelSource, TellsWhereOtherProgramsDiffer) {
  const std::vector<std::string> notices = open_model("tests/data/parity/gpt_oss")->notices();
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_TRUE(
      notices[0].starts_with("rope_parameters has truncate false: mlx-lm and llama.cpp have whole pairs"))
      << notices[0];
  EXPECT_TRUE(open_model("tests/data/parity/llama")->notices().empty());
}

TEST_F(HeadsAndNames, NamesWithoutTheirFirstPart) {
  const auto model = open({{"embed_tokens.weight", {1, 1}, {1}}, {"norm.weight", {1}, {2}}}, true);
  EXPECT_EQ(model->names(), (std::vector<std::string>{"model.embed_tokens.weight", "model.norm.weight"}));
  EXPECT_EQ(model->notices().size(), 1u);
}

TEST_F(HeadsAndNames, OnlyTheHeadOfATiedPair) {
  const auto model = open({{"lm_head.weight", {1, 2}, {1, 2}}}, true);
  EXPECT_EQ(model->names(), (std::vector<std::string>{"model.embed_tokens.weight"}));
  EXPECT_EQ(values_of(*model, "model.embed_tokens.weight"), (std::vector<float>{1, 2}));
  EXPECT_EQ(model->notices().size(), 1u);
  EXPECT_TRUE(open({{"lm_head.weight", {1, 2}, {1, 2}}}, false)->has("lm_head.weight"));
}

TEST_F(HeadsAndNames, HeadOfATiedPairIsDroppedIfItIsACopy) {
  const Tensor embedding = {"model.embed_tokens.weight", {1, 2}, {1, 2}};
  const auto copy = open({embedding, {"lm_head.weight", {1, 2}, {1, 2}}}, true);
  EXPECT_FALSE(copy->has("lm_head.weight"));
  EXPECT_TRUE(copy->config().tie_word_embeddings);
  EXPECT_TRUE(copy->notices().empty());
  const auto own = open({embedding, {"lm_head.weight", {1, 2}, {1, 3}}}, true);
  EXPECT_TRUE(own->has("lm_head.weight"));
  EXPECT_FALSE(own->config().tie_word_embeddings);
  EXPECT_EQ(own->notices().size(), 1u);
}

TEST(ModelSource, TiedEmbeddingsOfAnMlxDirectoryFollowItsTensors) {
  const Tensor norm = {"model.norm.weight", {1}, {1}};
  const Tensor head = {"lm_head.weight", {1, 1}, {1}};
  const auto is_tied = [](const std::vector<Tensor>& tensors, const std::string& format) {
    const TempDirectory directory;
    write_model(directory.path(), tensors, {{"format", format}});
    auto config = nlohmann::json::parse(testing::contents_of(directory / "config.json"));
    config.erase("tie_word_embeddings");
    directory.write("config.json", config.dump());
    return open_model(directory.path())->config().tie_word_embeddings;
  };
  EXPECT_TRUE(is_tied({norm}, "mlx"));
  EXPECT_FALSE(is_tied({norm, head}, "mlx"));
  EXPECT_FALSE(is_tied({norm}, "pt"));
}

TEST(ModelSource, SkipsStoredRotaryFrequencies) {
  const TempDirectory directory;
  write_model(directory.path(), {{"model.layers.0.self_attn.rotary_emb.inv_freq", {1}, {1}}});
  EXPECT_TRUE(open_model(directory.path())->names().empty());
}

TEST(ModelSource, OpensGgufFilesByTheirNameOrFirstBytes) {
  const TempDirectory directory;
  for (const char* name : {"x.GGUF", "sha256-0123"}) {
    MIXTAPE_EXPECT_ERROR(open_model(directory.write(name, "GGUFxxxx")), ErrorCode::format, "version");
  }
  const fs::path file = directory.write("x.gguf", "not a GGUF file at all");
  MIXTAPE_EXPECT_ERROR(open_model(file), ErrorCode::format, "x.gguf");
}

TEST(ModelSource, RefusesWhatIsNoModel) {
  const TempDirectory directory;
  MIXTAPE_EXPECT_ERROR(open_model(directory / "absent"), ErrorCode::invalid_argument, "absent: cannot open");
  MIXTAPE_EXPECT_ERROR(open_model(directory.path()), ErrorCode::format,
                       "found neither model.safetensors nor");
  const fs::path file = directory.write("x.bin", "?");
  MIXTAPE_EXPECT_ERROR(open_model(file), ErrorCode::not_supported,
                       "isn't GGUF, expected a GGUF file or the directory of a model");
  write_model(directory.path(), {{"model.norm.weight", {1}, {1}}});
  fs::remove(directory / "config.json");
  MIXTAPE_EXPECT_ERROR(open_model(directory.path()), ErrorCode::invalid_argument, "config.json: cannot open");
  write_model(directory.path(), {{"model.norm.weight", {1}, {1}}});
  MIXTAPE_EXPECT_ERROR(open_model(directory.path())->tokenizer_json(), ErrorCode::invalid_argument,
                       "tokenizer.json: cannot open");
  EXPECT_TRUE(open_model(directory.path())->tokenizer_config_json().empty());
}

// Hugging Face stores most norms of a qwen3_next less 1 and taps as [C,1,K]; MLX neither.
TEST(ModelSource, ZeroCentredNormsAndTaps) {
  const std::string path = "tests/data/parity/qwen3_next", norm = "model.norm.weight",
                    own = "model.layers.0.linear_attn.norm.weight",
                    taps = "model.layers.0.linear_attn.conv1d.weight";
  const auto model = open_model(path);
  const SafetensorsFile file = SafetensorsFile::open(path + "/model.safetensors");
  const auto stored = [&](const std::string& name) {
    return load(name, file.at(name), DType::f32, Device::cpu()).to_vector<float>();
  };
  std::vector<float> centred = stored(norm);
  for (float& v : centred) v += 1.0f;
  EXPECT_EQ(values_of(*model, norm), centred);
  EXPECT_EQ(values_of(*model, own), stored(own));
  EXPECT_EQ(model->shape(taps), (Shape{160, 4, 1}));
  EXPECT_EQ(values_of(*model, taps), stored(taps));

  const TempDirectory directory;
  write_model(directory.path(), {{norm, {2}, {1.5f, 2.0f}}}, {{"format", "mlx"}});
  fs::copy_file(fs::path(path) / "config.json", directory.path() / "config.json",
                fs::copy_options::overwrite_existing);
  EXPECT_EQ(values_of(*open_model(directory.path()), norm), (std::vector<float>{1.5f, 2.0f}));
}

}  // namespace
}  // namespace mixtape
