#include "mixtape/io/text_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "mixtape/io/json_file.h"
#include "mixtape/io/model_source.h"
#include "mixtape/io/safetensors.h"
#include "mixtape/io/safetensors_writer.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kText = "tests/data/parity/gemma3_text";

TEST(TextPart, TakesWhatStandsOutsideAndTheDefaults) {
  json config = {
      {"model_type", "gemma3"},
      {"eos_token_id", {1, 106}},
      {"torch_dtype", "bfloat16"},
      {"text_config", {{"hidden_size", 2560}, {"num_attention_heads", 16}, {"eos_token_id", nullptr}}}};
  const json text = *text_config(config, "config.json");
  EXPECT_EQ(text["model_type"], "gemma3_text");
  EXPECT_EQ(text["architectures"], json({"Gemma3ForCausalLM"}));
  EXPECT_EQ(text["eos_token_id"], json({1, 106}));
  EXPECT_EQ(text["torch_dtype"], "bfloat16");
  EXPECT_EQ(text["num_attention_heads"], 16);
  EXPECT_EQ(text["num_key_value_heads"], 4);
  EXPECT_EQ(text["vocab_size"], 262208);
  EXPECT_FALSE(text_config(json{{"model_type", "llama"}}, "config.json"));
  EXPECT_FALSE(text_config(json::array(), "config.json"));
  EXPECT_FALSE(text_config(json{{"model_type", "gemma3"}, {"num_hidden_layers", 2}}, "config.json"));
  config.erase("text_config");
  MIXTAPE_EXPECT_ERROR(text_config(config, "x/config.json"), ErrorCode::format,
                       "x/config.json: text_config is null, expected an object");
}

// As Hugging Face has named its tensors, older and newer, and as MLX does.
TEST(TextPart, ADirectoryIsReadAsItsLanguageModel) {
  const SafetensorsFile file = SafetensorsFile::open(fs::path(kText) / "model.safetensors");
  const auto inner = [](const std::string& name) { return "model.language_model." + name.substr(6); };
  const auto outer = [](const std::string& name) { return "language_model." + name; };
  for (const auto& renamed : {std::function<std::string(const std::string&)>(inner), {outer}}) {
    const testing::TempDirectory directory;
    std::vector<TensorSpec> specs;
    for (const auto& [name, view] : file.tensors()) specs.push_back({renamed(name), view.dtype, view.shape});
    specs.push_back({"model.vision_tower.norm.weight", FileDType::F32, {1}});
    specs.push_back({"multi_modal_projector.weight", FileDType::F32, {1}});
    SafetensorsWriter writer(directory / "model.safetensors", specs, {});
    for (const auto& [name, view] : file.tensors()) writer.write(renamed(name), view.bytes);
    const float nothing = 0.0f;
    for (const char* other : {"model.vision_tower.norm.weight", "multi_modal_projector.weight"})
      writer.write(other, std::as_bytes(std::span(&nothing, 1)));
    writer.commit();
    const json whole = {{"model_type", "gemma3"},
                        {"vision_config", json::object()},
                        {"text_config", read_config_json(fs::path(kText) / "config.json")}};
    std::ofstream(directory / "config.json") << whole;

    const auto model = open_model(directory.path()), text = open_model(kText);
    EXPECT_EQ(model->names(), text->names());
    EXPECT_EQ(model->config().layers.size(), text->config().layers.size());
    EXPECT_EQ(model->load("model.norm.weight", DType::f32, Device::cpu()).to_vector<float>(),
              text->load("model.norm.weight", DType::f32, Device::cpu()).to_vector<float>());
    EXPECT_THAT(
        model->notices(),
        ::testing::Contains(HasSubstr("text part is read; left out: multi_modal_projector, vision_tower")));
  }
}

}  // namespace
}  // namespace mixtape
