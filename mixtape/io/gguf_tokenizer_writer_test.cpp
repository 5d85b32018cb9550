#include "mixtape/io/gguf_tokenizer_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "mixtape/io/gguf_tokenizer.h"
#include "mixtape/io/gguf_writer.h"
#include "mixtape/io/json_file.h"
#include "mixtape/io/tokenizer.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

using nlohmann::json;

class GgufTokenizerWriter : public ::testing::Test {
 protected:
  // Of what is written for a tokenizer, as a file without tensors.
  GgufFile file(const json& tokenizer, const json& config, std::int64_t rows) {
    ModelConfig model;
    model.vocab_size = rows;
    GgufMetadata metadata;
    add_gguf_tokenizer(tokenizer, config, model, "m", metadata);
    AtomicFile out(directory_ / "x.gguf");
    GgufWriter(out, GgufLayout(metadata, {})).commit();
    return GgufFile(directory_ / "x.gguf");
  }
  static Tokenizer tokenizer_of(const GgufFile& f) {
    return Tokenizer::from_json(gguf_tokenizer_json(f), gguf_tokenizer_config_json(f));
  }
  void refused(const json& tokenizer, const json& config, ErrorCode code, const std::string& text,
               std::int64_t rows = 512) {
    MIXTAPE_EXPECT_ERROR(file(tokenizer, config, rows), code, text);
  }
  static json stories() { return read_config_json("tests/data/stories260k/tokenizer.json"); }

  testing::TempDirectory directory_;
};

// From a GGUF file to tokenizer.json and back: the same keys.
TEST_F(GgufTokenizerWriter, VocabulariesComeBack) {
  for (const char* name : {"gpt-2", "llama-spm"}) {
    const GgufFile original(std::string("tests/data/vocab/") + name + ".gguf");
    const auto tokens = original.strings("tokenizer.ggml.tokens");
    const GgufFile found =
        file(gguf_tokenizer_json(original), gguf_tokenizer_config_json(original), std::ssize(tokens));
    EXPECT_EQ(found.string("tokenizer.ggml.model"), original.string("tokenizer.ggml.model"));
    EXPECT_EQ(found.string("tokenizer.ggml.pre"), original.string("tokenizer.ggml.pre"));
    EXPECT_EQ(found.strings("tokenizer.ggml.tokens"), tokens);
    EXPECT_EQ(found.integers("tokenizer.ggml.token_type"), original.integers("tokenizer.ggml.token_type"));
    for (const char* key : {"bos", "eos", "unknown"}) {
      const std::string full = str("tokenizer.ggml.", key, "_token_id");
      if (!original.has(full)) continue;
      EXPECT_EQ(found.integer(full), original.integer(full)) << full;
    }
    ASSERT_EQ(found.has("tokenizer.ggml.merges"), original.has("tokenizer.ggml.merges"));
    if (original.has("tokenizer.ggml.merges")) {
      EXPECT_EQ(found.strings("tokenizer.ggml.merges"), original.strings("tokenizer.ggml.merges"));
    }
    // Scores are others in the same order: the texts get the same ids.
    const Tokenizer a = tokenizer_of(original), b = tokenizer_of(found);
    std::ifstream texts(std::string("tests/data/vocab/") + name + ".gguf.inp");
    for (std::string line; std::getline(texts, line);)
      EXPECT_EQ(a.encode(line, true), b.encode(line, true)) << line;
  }
}

TEST_F(GgufTokenizerWriter, TokensAreOfTheirKind) {
  json tokenizer = stories();
  tokenizer["added_tokens"].push_back({{"id", 512},
                                       {"content", "<tool>"},
                                       {"special", false},
                                       {"single_word", false},
                                       {"lstrip", false},
                                       {"rstrip", false},
                                       {"normalized", false}});
  const json config = {{"bos_token", "<s>"},
                       {"eos_token", "</s>"},
                       {"chat_template", json::array({{{"name", "default"}, {"template", "a"}},
                                                      {{"name", "tool_use"}, {"template", "b"}}})}};
  const GgufFile found = file(tokenizer, config, 515);
  const auto tokens = found.strings("tokenizer.ggml.tokens");
  const auto types = found.integers("tokenizer.ggml.token_type");
  ASSERT_EQ(tokens.size(), 515u);
  EXPECT_EQ(types[0], 2);    // <unk>
  EXPECT_EQ(types[1], 3);    // <s>
  EXPECT_EQ(types[3], 6);    // <0x00>
  EXPECT_EQ(types[300], 1);  // a word
  EXPECT_EQ(types[512], 4);
  EXPECT_EQ(tokens[512], "<tool>");
  EXPECT_EQ(types[514], 5);  // a row without a token
  EXPECT_EQ(tokens[514], "[PAD514]");
  EXPECT_EQ(found.string("tokenizer.chat_template"), "a");
  EXPECT_EQ(found.string("tokenizer.chat_template.tool_use"), "b");
  EXPECT_THAT(found.strings("tokenizer.chat_templates"), ::testing::ElementsAre("tool_use"));
  EXPECT_TRUE(found.boolean("tokenizer.ggml.add_bos_token"));
  EXPECT_FALSE(found.boolean("tokenizer.ggml.add_eos_token"));
  EXPECT_EQ(found.numbers("tokenizer.ggml.scores").size(), 515u);
}

// llama.cpp takes token 11 or 2 where a file names no end.
TEST_F(GgufTokenizerWriter, AnEndIsAlwaysNamed) {
  json t = stories();
  t["post_processor"] = nullptr;
  const auto end = [&](const json& config, std::int64_t rows) {
    return file(t, config, rows).integer("tokenizer.ggml.eos_token_id");
  };
  EXPECT_EQ(end({{"bos_token", "</s>"}}, 512), 2);
  EXPECT_EQ(end(json::object(), 512), 1);  // the first special token
  for (json& token : t["added_tokens"]) token["special"] = false;
  EXPECT_EQ(end(json::object(), 515), 512);  // a row without a token
  refused(t, json::object(), ErrorCode::not_supported, "expected eos_token_id");
}

// The forms in which published tokenizers state what the names mean.
TEST_F(GgufTokenizerWriter, NamesThePreTokenizer) {
  const GgufFile gpt2("tests/data/vocab/gpt-2.gguf");
  const json base = gguf_tokenizer_json(gpt2), config = gguf_tokenizer_config_json(gpt2);
  const auto rows = std::ssize(gpt2.strings("tokenizer.ggml.tokens"));
  const auto name = [&](const json& tokenizer) {
    return std::string(file(tokenizer, config, rows).string("tokenizer.ggml.pre"));
  };
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  json plain = bytes;
  plain["use_regex"] = false;
  json t = base;
  t["pre_tokenizer"] = bytes;
  EXPECT_EQ(name(t), "gpt-2");
  t["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers", json::array({{{"type", "Digits"}, {"individual_digits", true}}, bytes})}};
  EXPECT_EQ(name(t), "smollm");
  const auto split = [&](const std::string& pattern) {
    return json{{"type", "Sequence"},
                {"pretokenizers", json::array({{{"type", "Split"},
                                                {"pattern", {{"Regex", pattern}}},
                                                {"behavior", "Isolated"},
                                                {"invert", false}},
                                               plain})}};
  };
  const std::string words = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)",
                    rest = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  t["pre_tokenizer"] = split(words + R"(\p{N})" + rest);
  t["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(name(t), "qwen2");
  t["pre_tokenizer"] = split(words + R"(\p{N}{1,3})" + rest);
  t["normalizer"] = nullptr;
  t["model"]["ignore_merges"] = true;
  EXPECT_EQ(name(t), "llama-bpe");
  t["model"]["ignore_merges"] = false;
  refused(t, config, ErrorCode::not_supported, "m: tokenizer.json: its pre-tokenizer", rows);
  t["pre_tokenizer"] = split("a+");
  refused(t, config, ErrorCode::not_supported, "has no name in GGUF files, expected one of gpt-2", rows);
}

TEST_F(GgufTokenizerWriter, RefusesByName) {
  const json config = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  json t = stories();
  t["normalizer"]["normalizers"].push_back({{"type", "Lowercase"}});
  refused(t, config, ErrorCode::not_supported, "normalizer {\"type\":\"Lowercase\"}");
  t = stories();
  refused(t, config, ErrorCode::format, "the tokenizer has 512 tokens, expected at most the 500 rows", 500);
  t = stories();
  t["model"]["merges"].erase(t["model"]["merges"].begin() + 40);
  refused(t, config, ErrorCode::not_supported, "no merge makes the token");
  // Other texts around than BOS and EOS.
  t = stories();
  t["post_processor"]["single"][0]["SpecialToken"]["id"] = "<unk>";
  t["post_processor"]["special_tokens"] = {{"<unk>", {{"id", "<unk>"}, {"ids", {0}}, {"tokens", {"<unk>"}}}}};
  refused(t, config, ErrorCode::not_supported, "post-processor");
}

}  // namespace
}  // namespace mixtape
