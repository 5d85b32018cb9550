#include "mixtape/io/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mixtape/core/error.h"
#include "mixtape/io/text_utf8.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Text, InvalidUtf8NamesFileAndOffset) {
  const testing::TempDirectory directory;
  const auto path = directory.write("bad.txt", "good\n\xC3(");
  EXPECT_THAT(message_of([&] { read_utf8_file(path); }), HasSubstr("bad.txt: byte 5 "));
  EXPECT_THAT(message_of([&] { read_utf8_file(directory / "none.txt"); }), HasSubstr("none.txt"));
  EXPECT_THAT(message_of([&] { read_utf8_file(directory.path()); }), HasSubstr("directory"));
}

TEST(Text, ByteOrderMarkIsDropped) {
  const testing::TempDirectory directory;
  EXPECT_EQ(read_utf8_file(directory.write("a.txt",
                                           "\xEF\xBB\xBF"
                                           "a\xEF\xBB\xBF")),
            "a\xEF\xBB\xBF");
  EXPECT_EQ(read_utf8_file(directory.write("empty.txt", "")), "");
}

TEST(Text, LineEndsOfWindowsAreLineEnds) {
  const testing::TempDirectory directory;
  EXPECT_EQ(read_utf8_file(directory.write("a.txt", "\r\na\r\n\r\nb\rc\r")), "\na\n\nb\rc\r");
}

TEST(Text, OtherEncodingsAreRefusedByName) {
  using namespace std::string_literals;
  const testing::TempDirectory directory;
  const auto message = [&](const std::string& bytes) {
    const auto path = directory.write("a.txt", bytes);
    return message_of([&] { read_utf8_file(path); });
  };
  EXPECT_THAT(message("\xFF\xFE"
                      "a\0b\0"s),
              HasSubstr("a.txt: found UTF-16 text"));
  EXPECT_THAT(message("\xFE\xFF\0a\0b"s), HasSubstr("a.txt: found UTF-16 text"));
  EXPECT_THAT(message("a\0b\0"s), HasSubstr("a.txt: byte 1 is NUL"));
  EXPECT_THAT(message("a\n\n\0"s), HasSubstr("a.txt: byte 3 is NUL"));
}

TEST(Text, ReadsThreeKindsOfLines) {
  const testing::TempDirectory directory;
  const auto path =
      directory.write("chats.jsonl",
                      "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": "
                      "\"assistant\", \"tool_calls\": []}], \"tools\": [{\"z\": 1, \"a\": 2}]}\r\n"
                      "\n  \n{\"prompt\": \"2+2\", \"completion\": \"4\"}\n{\"text\": \"plain\"}");
  const std::vector<Document> documents = read_jsonl(path);
  ASSERT_EQ(documents.size(), 3u);
  EXPECT_THAT(documents[0].messages, HasSubstr(R"("content":"hi")"));
  EXPECT_EQ(documents[0].tools, R"([{"z":1,"a":2}])");
  EXPECT_EQ(documents[1].messages, R"([{"role":"user","content":"2+2"},{"role":"assistant","content":"4"}])");
  EXPECT_FALSE(documents[2].is_chat());
  EXPECT_EQ(documents[2].text, "plain");
}

TEST(Text, BadLinesNameFileAndLine) {
  const testing::TempDirectory directory;
  for (const auto& [line, words] :
       {std::pair{"{\"text\": 1}", "\"text\" must be a string"},
        {"{\"text\"", "invalid JSON"},
        {"[1]", "expected a JSON object"},
        {"{\"words\": 1}", "expected \"messages\""},
        {"{\"prompt\": \"a\"}", "\"completion\" must be"},
        {"{\"messages\": []}", "not empty"},
        {"{\"messages\": [3]}", "message 0 is not an object"},
        {"{\"messages\": [{\"content\": \"a\"}]}", "message 0 has no \"role\""},
        {"{\"messages\": [{\"role\": \"user\"}]}", "message 0 has no \"content\""},
        {"{\"messages\": [{\"role\": \"u\", \"content\": 3}]}", "neither"}}) {
    const auto path = directory.write("bad.jsonl", std::string("{\"text\": \"fine\"}\n\n") + line + "\n");
    EXPECT_THAT(message_of([&] { read_jsonl(path); }), HasSubstr(std::string("bad.jsonl, line 3: "))) << line;
    EXPECT_THAT(message_of([&] { read_jsonl(path); }), HasSubstr(words)) << line;
  }
  const auto deep = directory.write("deep.jsonl", "{\"text\": " + std::string(100'000, '['));
  EXPECT_THAT(message_of([&] { read_jsonl(deep); }), HasSubstr("nests deeper than 64"));
  const auto nul = directory.write("nul.jsonl", std::string("{\"text\": \"a\"}\0junk", 18));
  EXPECT_THAT(message_of([&] { read_jsonl(nul); }), HasSubstr("NUL"));
}

TEST(Utf8, LossyReplacesEachIllFormedSequenceOnce) {
  EXPECT_EQ(utf8_lossy("a\xE4\xB8"
                       "b\xFF\xC0\xAF\xF0\x9F\x91"),
            "a\uFFFDb\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(utf8_lossy("\xED\xA0\x80 ok \xE4\xB8\xAD"), "\uFFFD\uFFFD\uFFFD ok \u4E2D");
}

TEST(Utf8, CodePointsAndCase) {
  EXPECT_EQ(count_code_points("a\u00E9\u4E2D\U0001F44D"), 4u);
  EXPECT_EQ(last_code_point("x\u4E2D").value, U'\u4E2D');
  EXPECT_EQ(to_lower("\u0130\u03A3A"), "i\u0307\u03C3a");
  EXPECT_EQ(to_upper("stra\u00DFe"), "STRASSE");
  EXPECT_EQ(strip_white_space("\u2003 a \u00A0", true, true), "a");
  EXPECT_FALSE(is_white_space(0x180E));
  EXPECT_TRUE(is_word(U'_') && is_word(0x300) && !is_word(U'-'));
}

}  // namespace
}  // namespace mixtape
