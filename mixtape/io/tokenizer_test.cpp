#include "mixtape/io/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "mixtape/core/error.h"
#include "mixtape/io/json_file.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::uint32_t>;

// Runs `call` and returns the error it throws.
template <class Call>
Error error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorCode::device, "");
}

// One id for each letter a to z, " ", "<", ">" and "|"; merges ab, abc, bc.
json letters() {
  json vocab = json::object();
  for (const char c : std::string("abcdefghijklmnopqrstuvwxyz <>|")) vocab[std::string(1, c)] = vocab.size();
  for (const char* token : {"ab", "abc", "bc"}) vocab[token] = vocab.size();
  const json merges = {"b c", json::array({"a", "b"}), "ab c"};
  return {{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
}

json added(const char* content, unsigned id, json flags = json::object()) {
  json token = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", false}};
  token.update(flags);
  return token;
}

std::vector<std::string> tokens_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::string> tokens;
  for (const std::uint32_t id : tokenizer.encode(text, false)) tokens.push_back(tokenizer.token(id));
  return tokens;
}

// Made by tests/data/tokenizer/make_vectors.py with the reference library.
TEST(Tokenizer, ReferenceVectors) {
  const json file = read_json("tests/data/tokenizer/components.json");
  std::size_t cases = 0;
  for (const json& entry : file["tokenizers"]) {
    json spec = entry["spec"];
    spec["model"] = file["models"][entry["model"].get<std::string>()];
    spec["model"]["ignore_merges"] = entry["ignore_merges"];
    const Tokenizer tokenizer = Tokenizer::from_json(spec, nullptr);
    for (const json& c : entry["cases"]) {
      const Ids ids = tokenizer.encode(c["text"].get<std::string>(), c["add_special"].get<bool>());
      EXPECT_EQ(ids, c["ids"].get<Ids>()) << c["text"] << entry["spec"];
      ++cases;
      if (!c.contains("decoded")) continue;
      EXPECT_EQ(tokenizer.decode(ids, false), c["decoded"].get<std::string>()) << entry["spec"];
      EXPECT_EQ(tokenizer.decode(ids, true), c["decoded_without_special"].get<std::string>())
          << entry["spec"];
    }
  }
  EXPECT_EQ(cases, 180u);
}

TEST(Tokenizer, LoadsADirectory) {
  const Tokenizer tokenizer = Tokenizer::load("tests/data/stories260k");
  EXPECT_EQ(tokenizer.vocab_size(), 512u);
  EXPECT_EQ(tokenizer.bos_id(), 1u);
  EXPECT_EQ(tokenizer.eos_id(), 2u);
  const Ids ids = tokenizer.encode("Once upon a time, 中", true);
  EXPECT_EQ(ids, (Ids{1, 403, 407, 261, 378, 432, 410, 3 + 0xE4, 3 + 0xB8, 3 + 0xAD}));
  EXPECT_EQ(tokenizer.decode(ids, true), "Once upon a time, 中");
  EXPECT_EQ(tokenizer.id_of("</s>"), 2u);
  EXPECT_EQ(tokenizer.id_of("no such token"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(1));
  EXPECT_FALSE(tokenizer.is_special(403));
}

// An added token that is sought in the normalized text is decoded as it is written there; the texts are what the
// reference library makes of these ids.
TEST(Tokenizer, NormalizedAddedTokensDecodeAsTheyAreWritten) {
  json spec = read_json("tests/data/stories260k/tokenizer.json");
  for (const auto& [text, id] : {std::pair{"<Tool>", 512}, {"a b", 514}, {" x", 515}})
    spec["added_tokens"].push_back(added(text, id, {{"normalized", true}}));
  spec["added_tokens"].push_back(added("<raw tok>", 513, {{"normalized", false}}));
  const Tokenizer tokenizer = Tokenizer::from_json(spec, nullptr);
  const auto decoded = [&](const Ids& ids) { return tokenizer.decode(ids, false); };
  EXPECT_EQ(tokenizer.encode("hi <Tool> b", false), (Ids{270, 417, 512, 268}));
  EXPECT_EQ(decoded({270, 417, 512, 268}), "hi <Tool> b");
  EXPECT_EQ(decoded({514, 280}), "a b c");
  EXPECT_EQ(decoded({515, 348}), " x y");
  EXPECT_EQ(decoded({410, 512, 410}), " <Tool> ");
  EXPECT_EQ(decoded({513, 410, 410, 456}), "<raw tok>  q");
}

// Added tokens are cut out before BPE, special or not.
TEST(Tokenizer, K5_AddedTokenThatIsNotSpecial) {
  json spec = letters();
  spec["added_tokens"] = {added("<think>", 33), added("<thinker>", 34),
                          added("<|e|>", 35, {{"special", true}})};
  const Tokenizer tokenizer = Tokenizer::from_json(spec, nullptr);
  EXPECT_THAT(tokens_of(tokenizer, "<think>abc<thinker><think"),
              ElementsAre("<think>", "a", "bc", "<thinker>", "<", "t", "h", "i", "n", "k"));
  const Ids ids = tokenizer.encode("<think>a<|e|>", false);
  EXPECT_EQ(ids, (Ids{33, 0, 35}));
  EXPECT_EQ(tokenizer.decode(ids, true), "<think> a");
}

TEST(Tokenizer, AddedTokensOfTheConfiguration) {
  json spec = letters();
  spec["added_tokens"] = {added("<x>", 33)};
  const json config = {{"added_tokens_decoder", {{"33", added("<x>", 33)}, {"36", added("<y>", 0)}}},
                       {"bos_token", {{"content", "<x>"}}},
                       {"eos_token", "<y>"}};
  const Tokenizer tokenizer = Tokenizer::from_json(spec, config);
  EXPECT_EQ(tokenizer.encode("a<y>", false), (Ids{0, 36}));
  EXPECT_EQ(tokenizer.bos_id(), 33u);
  EXPECT_EQ(tokenizer.eos_id(), 36u);
  EXPECT_EQ(tokenizer.vocab_size(), 37u);
}

TEST(Tokenizer, LowestRankThenLeftmost) {
  const Tokenizer tokenizer = Tokenizer::from_json(letters(), nullptr);
  EXPECT_THAT(tokens_of(tokenizer, "abcab"), ElementsAre("a", "bc", "ab"));
}

TEST(Tokenizer, MillionsOfSpaces) {
  json spec = letters();
  spec["pre_tokenizer"] = {{"type", "Split"},
                           {"pattern", {{"Regex", R"(\s+(?!\S)|\s+)"}}},
                           {"behavior", "Isolated"},
                           {"invert", false}};
  const Tokenizer tokenizer = Tokenizer::from_json(spec, nullptr);
  EXPECT_EQ(tokenizer.encode(std::string(12'000'000, ' ') + "a", false).back(), 0u);
}

// Far beyond what a quadratic merge finishes in the time of a test.
TEST(Tokenizer, OneLongWord) {
  json spec = letters();
  spec["model"]["vocab"]["aa"] = 40;
  spec["model"]["merges"].push_back("a a");
  const Tokenizer tokenizer = Tokenizer::from_json(spec, nullptr);
  const Ids ids = tokenizer.encode(std::string(1'000'001, 'a'), false);
  EXPECT_EQ(ids.size(), 500'001u);
  EXPECT_EQ(ids.front(), 40u);
  EXPECT_EQ(ids.back(), 0u);
}

TEST(Tokenizer, LongRunsOfWhiteSpace) {
  json spec = letters();
  spec["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  spec["model"]["vocab"]["\u0120"] = 41;
  const Tokenizer tokenizer = Tokenizer::from_json(spec, nullptr);
  const Ids ids = tokenizer.encode(std::string(300'000, ' ') + "a", false);
  EXPECT_EQ(ids.size(), 300'001u);
}

TEST(Tokenizer, EmptyText) {
  const Tokenizer tokenizer = Tokenizer::load("tests/data/stories260k");
  EXPECT_EQ(tokenizer.encode("", false), Ids{});
  EXPECT_EQ(tokenizer.encode("", true), Ids{1});
  EXPECT_EQ(tokenizer.decode(Ids{}, false), "");
}

TEST(Tokenizer, InvalidUtf8IsRefusedWithItsOffset) {
  const Tokenizer tokenizer = Tokenizer::from_json(letters(), nullptr);
  for (const char* bad :
       {"abc\xFFz", "abc\xC0\xAFz", "abc\xED\xA0\x80z", "abc\xF4\x90\x80\x80z", "abc\xE4\xB8"}) {
    const Error error = error_of([&] { tokenizer.encode(bad, false); });
    EXPECT_EQ(error.code(), ErrorCode::format);
    EXPECT_THAT(error.what(), HasSubstr("byte 3 "));
  }
}

TEST(Tokenizer, IdWithoutTokenIsRefused) {
  const Tokenizer tokenizer = Tokenizer::from_json(letters(), nullptr);
  const Error error = error_of([&] { tokenizer.decode(Ids{1, 2, 33}, false); });
  EXPECT_EQ(error.code(), ErrorCode::index_out_of_range);
  EXPECT_THAT(error.what(), HasSubstr("id 33 found at position 2"));
  EXPECT_EQ(error_of([&] { tokenizer.token(33); }).code(), ErrorCode::index_out_of_range);
}

TEST(Tokenizer, UnknownComponentsAreNamed) {
  for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder", "model"}) {
    json spec = letters();
    spec[part] = {{"type", "Gizmo"}};
    const Error error = error_of([&] { Tokenizer::from_json(spec, nullptr); });
    EXPECT_EQ(error.code(), ErrorCode::not_supported);
    EXPECT_THAT(error.what(), HasSubstr(part));
    EXPECT_THAT(error.what(), HasSubstr("\"Gizmo\""));
  }
  json spec = letters();
  spec["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Gizmo"}}}}};
  EXPECT_THAT(error_of([&] { Tokenizer::from_json(spec, nullptr); }).what(), HasSubstr("Gizmo"));
}

TEST(Tokenizer, OptionsThatChangeIdsAreRefused) {
  for (const json& option : {json{{"dropout", 0.1}}, json{{"end_of_word_suffix", "</w>"}},
                             json{{"continuing_subword_prefix", "##"}}}) {
    json spec = letters();
    spec["model"].update(option);
    EXPECT_EQ(error_of([&] { Tokenizer::from_json(spec, nullptr); }).code(), ErrorCode::not_supported)
        << option;
  }
}

TEST(Tokenizer, MalformedModels) {
  const auto message = [](const char* pointer, const json& value) {
    json spec = letters();
    spec[json::json_pointer(pointer)] = value;
    const Error error = error_of([&] { Tokenizer::from_json(spec, nullptr); });
    EXPECT_EQ(error.code(), ErrorCode::format);
    return std::string(error.what());
  };
  EXPECT_THAT(message("/model/merges", {"a b", "b"}), HasSubstr("merge 1 is \"b\""));
  EXPECT_THAT(message("/model/merges", {"a b c"}), HasSubstr("merge 0"));
  EXPECT_THAT(message("/model/merges", {"a d"}), HasSubstr("\"ad\", which is not in the vocabulary"));
  EXPECT_THAT(message("/model/vocab/a", -1), HasSubstr("the id of \"a\" is -1"));
  EXPECT_THAT(message("/model/vocab/a", 4e9), HasSubstr("the id of \"a\""));
  EXPECT_THAT(message("/added_tokens", json::array({added("ab", 77)})), HasSubstr("\"ab\" has id 77"));
  EXPECT_THAT(message("/added_tokens", json::array({added("<x>", 0)})), HasSubstr("belongs to \"a\""));
  EXPECT_THAT(message("/normalizer", {{"type", "Prepend"}}), HasSubstr("Prepend: \"prepend\""));
  EXPECT_THAT(message("/decoder", {{"type", "Strip"}, {"content", " "}, {"start", -1}, {"stop", 0}}),
              HasSubstr("\"start\""));
  EXPECT_THAT(message("/pre_tokenizer",
                      {{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", "a("}}}}),
              HasSubstr("a("));
}

TEST(Tokenizer, UnknownTokenOutsideTheVocabulary) {
  json spec = letters();
  spec["model"]["unk_token"] = "<unk>";
  const Tokenizer tokenizer = Tokenizer::from_json(spec, nullptr);
  EXPECT_EQ(tokenizer.encode("ab", false).size(), 1u);
  EXPECT_THAT(error_of([&] { tokenizer.encode("a!", false); }).what(), HasSubstr("<unk>"));
}

TEST(Tokenizer, LoadNamesTheFile) {
  const testing::TempDirectory directory;
  EXPECT_EQ(error_of([&] { Tokenizer::load(directory.path()); }).code(), ErrorCode::invalid_argument);
  directory.write("tokenizer.json", R"({"model": {"type": "Unigram"}})");
  const Error error = error_of([&] { Tokenizer::load(directory.path()); });
  EXPECT_THAT(error.what(), HasSubstr("tokenizer.json: "));
  EXPECT_THAT(error.what(), HasSubstr("\"Unigram\""));
}

TEST(Tokenizer, ThreadsShareOne) {
  const Tokenizer tokenizer = Tokenizer::load("tests/data/stories260k");
  const Ids expected = tokenizer.encode("One day, a little girl", true);
  std::vector<std::thread> threads;
  std::array<bool, 4> equal{};
  for (bool& result : equal) {
    threads.emplace_back([&] {
      result = true;
      for (int i = 0; i < 200; ++i)
        result = result && tokenizer.encode("One day, a little girl", true) == expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(equal, ::testing::Each(true));
}

}  // namespace
}  // namespace mixtape
