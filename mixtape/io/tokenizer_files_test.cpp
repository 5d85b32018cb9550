// Directories made of tests/data/stories260k and a few files of other contents.
#include "mixtape/io/tokenizer_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/chat_template.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kTemplate =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{{ eos_token }}{% endfor %}";
const json kNamed = {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"chat_template", kTemplate}};

class Directory {
 public:
  Directory() {
    for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
      std::filesystem::copy("tests/data/stories260k/" + std::string(name), files_.path());
    }
    write_json("tokenizer_config.json", kNamed);
  }
  void write_json(const std::string& name, const json& contents) { write(name, contents.dump()); }
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((files_ / name).parent_path());
    files_.write(name, text);
  }
  void change(const std::string& name, const json& changes) {
    json contents = json::parse(testing::contents_of(files_ / name));
    contents.merge_patch(changes);
    write_json(name, contents);
  }

  const std::filesystem::path& path() const { return files_.path(); }
  std::unique_ptr<ModelSource> open() const { return open_model(path()); }
  Tokenizer tokenizer() const {
    const auto source = open();
    return Tokenizer::from_json(source->tokenizer_json(), source->tokenizer_config_json());
  }
  std::vector<std::uint32_t> stops() const { return stop_ids(*open(), tokenizer()); }
  std::string render(const ChatOptions& options = {}) const {
    return ChatTemplate::from_source(*open())->render(R"([{"role": "user", "content": "Hi"}])", options);
  }

 private:
  testing::TempDirectory files_;
};

TEST(TokenizerFiles, ChatTemplateFromItsFileAlone) {
  Directory d;
  d.change("tokenizer_config.json", {{"chat_template", nullptr}});
  EXPECT_FALSE(ChatTemplate::from_source(*d.open()).has_value());
  d.write("chat_template.jinja", "{{ bos_token }}file");
  EXPECT_EQ(d.render(), "<s>file");
}

TEST(TokenizerFiles, ChatTemplateFileBeforeTheConfiguration) {
  Directory d;
  d.change("tokenizer_config.json", {{"chat_template", "STALE"}});
  EXPECT_EQ(d.render(), "STALE");
  d.write("chat_template.jinja", "file");
  EXPECT_EQ(d.render(), "file");
  d.write("chat_template.jinja", "{{");
  try {
    d.render();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(d.path().string() + ": chat template, line 1"));
  }
}

TEST(TokenizerFiles, AdditionalChatTemplates) {
  Directory d;
  d.write("chat_template.jinja", "plain");
  d.write("additional_chat_templates/tool_use.jinja", "tools {{ tools|tojson }}");
  d.write("additional_chat_templates/rag.jinja", "{% include 'x' %}");  // never asked for
  EXPECT_EQ(d.render(), "plain");
  ChatOptions options;
  options.tools = R"(["t"])";
  EXPECT_EQ(d.render(options), "tools [\"t\"]");
}

TEST(TokenizerFiles, SpecialTokensFromTheirMap) {
  Directory d;
  d.write_json("tokenizer_config.json", json{{"chat_template", kTemplate}});
  EXPECT_EQ(d.render(), "[user] Hi");
  d.write_json("special_tokens_map.json", json{{"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}}}});
  EXPECT_EQ(d.render(), "<s>[user] Hi</s>");
  EXPECT_EQ(d.tokenizer().bos_id(), 1u);
  EXPECT_EQ(d.tokenizer().eos_id(), 2u);
  EXPECT_EQ(Tokenizer::load(d.path()).eos_id(), 2u);
}

// A configuration that lists the added tokens was written after the map was given up.
TEST(TokenizerFiles, MapAgainstConfiguration) {
  Directory d;
  d.write_json("special_tokens_map.json", json{{"eos_token", "<unk>"}});
  EXPECT_EQ(d.tokenizer().eos_id(), 0u);
  d.change("tokenizer_config.json",
           {{"added_tokens_decoder", {{"2", {{"content", "</s>"}, {"special", true}}}}}});
  EXPECT_EQ(d.tokenizer().eos_id(), 2u);
}

TEST(TokenizerFiles, PrefixFollowsFromThePostProcessor) {
  Directory d;
  d.write_json("tokenizer_config.json", json::object());
  EXPECT_FALSE(d.tokenizer().bos_id().has_value());
  EXPECT_THAT(d.tokenizer().prefix(), ElementsAre(1));
  d.change("tokenizer.json", {{"post_processor", nullptr}});
  EXPECT_THAT(d.tokenizer().prefix(), ElementsAre());
}

TEST(TokenizerFiles, StopIdsOfThreeFiles) {
  Directory d;
  EXPECT_THAT(d.stops(), ElementsAre(2));
  d.write_json("generation_config.json", json{{"eos_token_id", {2, 391}}});
  EXPECT_THAT(d.stops(), ElementsAre(2, 391));
  d.change("tokenizer_config.json", {{"eos_token", "<unk>"}});
  EXPECT_THAT(d.stops(), ElementsAre(0, 2, 391));
  d.write_json("generation_config.json", json{{"eos_token_id", nullptr}});
  d.change("config.json", {{"eos_token_id", nullptr}});
  EXPECT_THAT(d.stops(), ElementsAre(0));
  d.change("tokenizer_config.json", {{"eos_token", nullptr}});
  EXPECT_THAT(d.stops(), ElementsAre());
}

TEST(TokenizerFiles, SpecialTokensThatTokenizerJsonLacks) {
  Directory d;
  d.change("tokenizer_config.json", {{"additional_special_tokens", {"<tool>"}}, {"pad_token", "<pad>"}});
  EXPECT_THAT(d.tokenizer().encode("a <tool> b", false), ElementsAre(261, 410, 513, 410, 268));
  EXPECT_EQ(d.tokenizer().id_of("<pad>"), 512u);
  EXPECT_TRUE(d.tokenizer().is_special(513));
  d.change("tokenizer_config.json", {{"additional_special_tokens", {3}}});
  EXPECT_THROW(d.tokenizer(), Error);
}

TEST(TokenizerFiles, JsonAsPythonWritesIt) {
  const std::string rest = testing::contents_of("tests/data/stories260k/config.json").substr(1);
  Directory d;
  for (const char* begin : {"{\"limit\": [0.0, Infinity, -Infinity],", "{\"noise\": NaN,",
                            "{\"hidden_size\": 32,", "{\"text\": \"NaN \\\" Infinity\", \"noise\": NaN,"}) {
    d.write("config.json", begin + rest);
    EXPECT_EQ(d.open()->config().hidden_size, 64) << begin;
  }
  EXPECT_EQ(d.open()->config_json()["text"], "NaN \" Infinity");
  d.write("config.json", rest.substr(0, rest.rfind('}')).insert(0, "{") + ", \"rms_norm_eps\": NaN}");
  EXPECT_THROW(d.open()->config(), Error);
}

}  // namespace
}  // namespace mixtape
