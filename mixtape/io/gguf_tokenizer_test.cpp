#include "mixtape/io/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "mixtape/core/error.h"
#include "mixtape/io/json_file.h"
#include "mixtape/io/tokenizer.h"
#include "mixtape/testing/gguf_builder.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::GgufBuilder;
using ::testing::HasSubstr;
using Ids = std::vector<std::uint32_t>;

Tokenizer tokenizer_of(const GgufFile& file) {
  return Tokenizer::from_json(gguf_tokenizer_json(file), gguf_tokenizer_config_json(file));
}

std::vector<std::string> test_strings(const std::string& path) {
  const std::string text = read_text(path), marker = "\n__ggml_vocab_test__\n";
  std::vector<std::string> strings;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find(marker, begin)) != std::string::npos; begin = end + marker.size()) {
    strings.push_back(text.substr(begin, end - begin));
  }
  return strings;
}

std::vector<Ids> test_ids(const std::string& path) {
  std::istringstream text(read_text(path));
  std::vector<Ids> lines;
  for (std::string line; std::getline(text, line);) {
    std::istringstream numbers(line);
    lines.emplace_back();
    for (std::uint32_t id; numbers >> id;) lines.back().push_back(id);
  }
  return lines;
}

void expect_published_ids(const std::string& name) {
  const std::string path = "tests/data/vocab/" + name + ".gguf";
  const Tokenizer tokenizer = tokenizer_of(GgufFile(path));
  const std::vector<std::string> strings = test_strings(path + ".inp");
  const std::vector<Ids> ids = test_ids(path + ".out");
  ASSERT_EQ(strings.size(), 46u);
  ASSERT_GE(ids.size(), strings.size());
  for (std::size_t i = 0; i < strings.size(); ++i) {
    EXPECT_EQ(tokenizer.encode(strings[i], false), ids[i]) << "string " << i << ": " << strings[i];
    EXPECT_EQ(tokenizer.decode(ids[i], false), strings[i]) << "string " << i;
  }
}

TEST(GgufVocabulary, Gpt2GivesThePublishedIds) { expect_published_ids("gpt-2"); }
TEST(GgufVocabulary, LlamaSpmGivesThePublishedIds) { expect_published_ids("llama-spm"); }

class GgufTokenizer : public ::testing::Test {
 protected:
  GgufFile open(const GgufBuilder& b) { return GgufFile(directory_.write("x.gguf", b.bytes())); }
  Tokenizer tokenizer(const GgufBuilder& b) { return tokenizer_of(open(b)); }

  std::string refusal(const GgufBuilder& b, ErrorCode wanted = ErrorCode::format) {
    const GgufFile file = open(b);
    try {
      gguf_tokenizer_json(file);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), wanted) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("x.gguf"));
      return error.what();
    }
    ADD_FAILURE() << "accepted";
    return "";
  }

  static GgufBuilder bpe(const std::string& pre, const std::vector<std::string>& tokens,
                         const std::vector<std::string>& merges,
                         const std::vector<std::int32_t>& types = {}) {
    GgufBuilder b;
    b.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", pre);
    b.strings("tokenizer.ggml.tokens", tokens).strings("tokenizer.ggml.merges", merges);
    if (!types.empty()) b.array("tokenizer.ggml.token_type", 5, types);
    return b;
  }
  static GgufBuilder spm(const std::vector<std::string>& tokens, const std::vector<float>& scores,
                         const std::vector<std::int32_t>& types) {
    GgufBuilder b;
    b.string("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", tokens);
    b.array("tokenizer.ggml.scores", 6, scores).array("tokenizer.ggml.token_type", 5, types);
    return b;
  }

  testing::TempDirectory directory_;
};

TEST_F(GgufTokenizer, PreTokenizersCutDigitsDifferently) {
  const std::vector<std::string> tokens = {"1", "2", "3", "4", "12", "123", "1234"};
  const std::vector<std::string> merges = {"1 2", "12 3", "123 4"};
  EXPECT_THAT(tokenizer(bpe("gpt-2", tokens, merges)).encode("1234", false), ElementsAre(6));
  EXPECT_THAT(tokenizer(bpe("smollm", tokens, merges)).encode("1234", false), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(tokenizer(bpe("qwen2", tokens, merges)).encode("1234", false), ElementsAre(0, 1, 2, 3));
  const GgufBuilder llama = bpe("llama-bpe", tokens, merges).boolean("tokenizer.ggml.add_bos_token", false);
  EXPECT_THAT(tokenizer(llama).encode("1234", false), ElementsAre(5, 3));
}

TEST_F(GgufTokenizer, PreTokenizersCutContractions) {
  const std::vector<std::string> tokens = {"X", "'", "S", "'S", "s", "'s"};
  const std::vector<std::string> merges = {"' S", "' s"};
  EXPECT_THAT(tokenizer(bpe("gpt-2", tokens, merges)).encode("X'S", false), ElementsAre(0, 1, 2));
  EXPECT_THAT(tokenizer(bpe("gpt-2", tokens, merges)).encode("X's", false), ElementsAre(0, 5));
  EXPECT_THAT(tokenizer(bpe("qwen2", tokens, merges)).encode("X'S", false), ElementsAre(0, 3));
}

TEST_F(GgufTokenizer, Qwen2ComposesText) {
  const std::vector<std::string> tokens = {"\u00c3", "\u00a9", "\u00c3\u00a9", "e"};  // the bytes of U+00E9
  EXPECT_THAT(tokenizer(bpe("qwen2", tokens, {"\u00c3 \u00a9"})).encode("e\u0301", false), ElementsAre(2));
}

TEST_F(GgufTokenizer, LlamaBpeTakesWholeTokensAndAddsBos) {
  GgufBuilder b = bpe("llama-bpe", {"a", "b", "ab", "<s>"}, {}, {1, 1, 1, 3});
  EXPECT_THAT(refusal(b), HasSubstr("bos_token_id"));
  b.u32("tokenizer.ggml.bos_token_id", 3);
  EXPECT_THAT(tokenizer(b).encode("ab", true), ElementsAre(3, 2));
}

TEST_F(GgufTokenizer, K5_UserDefinedTokensAreMatchedFirst) {
  const std::vector<std::string> tokens = {"<",     "th",   "in", "k", ">", "<think>",
                                           "<end>", "thin", "t",  "h", "i", "n"};
  const std::vector<std::string> merges = {"t h", "i n", "th in"};
  const Tokenizer t = tokenizer(bpe("qwen2", tokens, merges, {1, 1, 1, 1, 1, 4, 3, 5, 1, 1, 1, 1}));
  EXPECT_THAT(t.encode("<think>k<end>", false), ElementsAre(5, 3, 6));
  EXPECT_FALSE(t.is_special(5));
  EXPECT_TRUE(t.is_special(6));
  EXPECT_THAT(t.encode("xthin", false).size(), 1u);  // 'x' has no token; unused tokens aren't cut out
}

TEST_F(GgufTokenizer, BosAndEosAsTheFileSays) {
  const std::vector<std::string> tokens = {"<s>", "</s>", "a"};
  GgufBuilder b = spm(tokens, {0, 0, -1}, {3, 3, 1});
  b.u32("tokenizer.ggml.bos_token_id", 0).u32("tokenizer.ggml.eos_token_id", 1);
  b.boolean("tokenizer.ggml.add_space_prefix", false);
  GgufBuilder both = b;
  EXPECT_THAT(tokenizer(b).encode("a", true), ElementsAre(0, 2));  // the default for this model
  EXPECT_THAT(tokenizer(b).encode("a", false), ElementsAre(2));
  EXPECT_THAT(tokenizer(both.boolean("tokenizer.ggml.add_eos_token", true)).encode("a", true),
              ElementsAre(0, 2, 1));
  EXPECT_THAT(tokenizer(b.boolean("tokenizer.ggml.add_bos_token", false)).encode("a", true), ElementsAre(2));
  EXPECT_EQ(tokenizer(b).bos_id(), 0u);
  EXPECT_EQ(tokenizer(b).eos_id(), 1u);
}

TEST_F(GgufTokenizer, SpmBestScoreLeftmostThenBytes) {
  const std::vector<std::string> tokens = {"<unk>", "<0xC3>", "<0xA9>", "a", "b", "c", "ab", "bc", "aa"};
  const GgufBuilder b = spm(tokens, {0, 0, 0, -9, -9, -9, -2, -1, -3}, {2, 6, 6, 1, 1, 1, 1, 1, 1})
                            .boolean("tokenizer.ggml.add_space_prefix", false)
                            .boolean("tokenizer.ggml.add_bos_token", false)
                            .u32("tokenizer.ggml.unknown_token_id", 0);
  const Tokenizer t = tokenizer(b);
  EXPECT_THAT(t.encode("abc", false), ElementsAre(3, 7));
  EXPECT_THAT(t.encode("abab", false), ElementsAre(6, 6));
  EXPECT_THAT(t.encode("aaa", false), ElementsAre(8, 3));
  EXPECT_THAT(t.encode("a\u00e9", false), ElementsAre(3, 1, 2));
  EXPECT_EQ(t.decode(Ids{3, 1, 2}, false), "a\u00e9");
}

TEST_F(GgufTokenizer, SpmSpacePrefix) {
  const std::vector<std::string> tokens = {"\u2581", "a", "\u2581a"};
  GgufBuilder b = spm(tokens, {-2, -2, -1}, {1, 1, 1}).boolean("tokenizer.ggml.add_bos_token", false);
  EXPECT_THAT(tokenizer(b).encode("a a", false), ElementsAre(2, 2));
  EXPECT_EQ(tokenizer(b).decode(Ids{2, 2}, false), "a a");
  b.boolean("tokenizer.ggml.add_space_prefix", false);
  EXPECT_THAT(tokenizer(b).encode("a a", false), ElementsAre(1, 2));
  EXPECT_EQ(tokenizer(b).decode(Ids{2, 2}, false), " a a");
}

TEST_F(GgufTokenizer, ConfigHoldsTokensAndChatTemplate) {
  GgufBuilder b = bpe("gpt-2", {"a", "<s>", "<pad>"}, {}, {1, 3, 3});
  b.u32("tokenizer.ggml.eos_token_id", 1).u32("tokenizer.ggml.padding_token_id", 2);
  b.string("tokenizer.chat_template", "{{ messages }}");
  const nlohmann::json config = gguf_tokenizer_config_json(open(b));
  EXPECT_EQ(config["eos_token"], "<s>");
  EXPECT_EQ(config["pad_token"], "<pad>");
  EXPECT_FALSE(config.contains("bos_token"));
  EXPECT_EQ(config["add_bos_token"], false);
  EXPECT_EQ(config["chat_template"], "{{ messages }}");
}

TEST_F(GgufTokenizer, NamedChatTemplatesBecomeAList) {
  GgufBuilder b = bpe("gpt-2", {"a"}, {});
  b.string("tokenizer.chat_template.tool_use", "tools");
  EXPECT_EQ(gguf_tokenizer_config_json(open(b))["chat_template"],
            nlohmann::json::parse(R"([{"name": "tool_use", "template": "tools"}])"));
  b.string("tokenizer.chat_template", "plain").strings("tokenizer.chat_templates", {"tool_use"});
  EXPECT_EQ(gguf_tokenizer_config_json(open(b))["chat_template"],
            nlohmann::json::parse(R"([{"name": "tool_use", "template": "tools"},
                                      {"name": "default", "template": "plain"}])"));
}

// SentencePiece merges the leftmost of equal pairs; ranks can't say that.
TEST_F(GgufTokenizer, EqualScoresAreRefused) {
  const std::vector<std::string> tokens = {"a", "b", "c", "ab", "bc", "aa", "aaa"};
  const std::vector<std::int32_t> types(7, 1);
  const auto scored = [&](float ab, float bc) {
    return spm(tokens, {-1, -1, -1, ab, bc, -9, -9}, types).boolean("tokenizer.ggml.add_bos_token", false);
  };
  EXPECT_THAT(refusal(scored(-1000, -1000), ErrorCode::not_supported),
              AllOf(HasSubstr("\"ab\""), HasSubstr("\"bc\""), HasSubstr("-1000")));
  const GgufBuilder distinct = scored(-4, -3).boolean("tokenizer.ggml.add_space_prefix", false);
  EXPECT_THAT(tokenizer(distinct).encode("abc", false), ElementsAre(0, 4));
}

TEST_F(GgufTokenizer, UnknownNamesAreRefusedByName) {
  EXPECT_THAT(refusal(bpe("tekken", {"a"}, {}), ErrorCode::not_supported), HasSubstr("'tekken'"));
  GgufBuilder b;
  b.string("tokenizer.ggml.model", "bert").strings("tokenizer.ggml.tokens", {"a"});
  EXPECT_THAT(refusal(b, ErrorCode::not_supported), HasSubstr("'bert'"));
  GgufBuilder no_pre;
  no_pre.string("tokenizer.ggml.model", "gpt2").strings("tokenizer.ggml.tokens", {"a"});
  EXPECT_THAT(refusal(no_pre), HasSubstr("tokenizer.ggml.pre"));
  EXPECT_THAT(refusal(GgufBuilder()), HasSubstr("tokenizer.ggml.model"));
  GgufBuilder prefixed = bpe("gpt-2", {"a"}, {}).boolean("tokenizer.ggml.add_space_prefix", true);
  EXPECT_THAT(refusal(prefixed, ErrorCode::not_supported), HasSubstr("add_space_prefix"));
}

TEST_F(GgufTokenizer, MalformedVocabulariesAreRefused) {
  EXPECT_THAT(refusal(bpe("gpt-2", {"a", "b", "a"}, {})), HasSubstr("tokens 0 and 2 are both \"a\""));
  EXPECT_THAT(refusal(bpe("gpt-2", {"a", "\xff"}, {})), HasSubstr("token 1"));
  EXPECT_THAT(refusal(bpe("gpt-2", {"a", "b"}, {}, {1})), HasSubstr("token_type' has 1 entries"));
  EXPECT_THAT(refusal(bpe("gpt-2", {"a"}, {}, {7})), HasSubstr("type 7"));
  EXPECT_THAT(refusal(spm({"a", "b"}, {0}, {1, 1})), HasSubstr("scores' has 1 entries"));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refusal(spm({"a", "b"}, {0, nan}, {1, 1})), AllOf(HasSubstr("token 1"), HasSubstr("NaN")));
  for (const char* merge : {"", "ab", "a c", "a b", " b", "a  b"}) {
    EXPECT_THAT(refusal(bpe("gpt-2", {"a", "b"}, {merge})), HasSubstr("merge 0")) << merge;
  }
}

TEST_F(GgufTokenizer, J5_IdsBeyondTheVocabulary) {
  GgufBuilder b = bpe("gpt-2", {"a"}, {}).boolean("tokenizer.ggml.add_bos_token", true);
  EXPECT_THAT(refusal(b.u32("tokenizer.ggml.bos_token_id", 1)), HasSubstr("bos_token_id' is 1"));
  GgufBuilder eos = bpe("gpt-2", {"a"}, {}).u32("tokenizer.ggml.eos_token_id", 5);
  EXPECT_THROW(gguf_tokenizer_config_json(open(eos)), Error);
}

}  // namespace
}  // namespace mixtape
