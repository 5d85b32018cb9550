#include "mixtape/calib/text_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "mixtape/core/counted.h"
#include "mixtape/core/error.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const std::string kAlternating =
    "{{ bos_token }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{{ m.content }}{% endfor %}";

class TextRowsTest : public ::testing::Test {
 protected:
  std::string chat(const std::string& content, const std::string& rest = "") const {
    return R"({"messages": [{"role": "user", "content": ")" + content + "\"}]" + rest + "}\n";
  }
  TextRows chats(const std::string& lines, std::int64_t length,
                 const std::string& source = "{{ messages[0].content }}") {
    return chat_rows({temp_.write("chats.jsonl", lines)}, tokenizer_, ChatTemplate(source), length);
  }
  template <class Call>
  std::string message_of(Call call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  testing::TempDirectory temp_;
  Tokenizer tokenizer_ = Tokenizer::load("tests/data/stories260k");
  const std::string story_ = "Once upon a time there was a girl. ";
};

TEST_F(TextRowsTest, RowsBeginAsTheTokenizerSays) {
  const auto path = temp_.write("a.txt", story_ + story_ + story_);
  const TextRows text = text_rows({path, path}, tokenizer_, 15);
  EXPECT_EQ(text.rows.size(), static_cast<std::size_t>(text.tokens) / 15);
  EXPECT_THAT(text.rows, Each(AllOf(SizeIs(16), ::testing::Contains(1u))));
  for (const TokenRow& row : text.rows) EXPECT_EQ(row.front(), 1u);
  EXPECT_EQ(text_rows({path}, tokenizer_, 15, 16).rows.size(), 1u);
}

TEST_F(TextRowsTest, SourcesThatAreTooShortAreNamed) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "Once upon a time. ";
  const auto empty = temp_.write("empty.txt", ""), enough = temp_.write("enough.txt", text);
  EXPECT_EQ(message_of([&] {
              text_sources({empty, enough}, tokenizer_, 16);
            }).find(empty.string() + ": found an empty file"),
            0u);
}

TEST_F(TextRowsTest, TooLittleTextSaysHowMuch) {
  const auto path = temp_.write("a.txt", "Once");
  const std::size_t tokens = tokenizer_.encode("Once", false).size();
  EXPECT_EQ(message_of([&] { text_rows({path}, tokenizer_, 64); }),
            path.string() + ": found " + counted(tokens, "token") + ", expected at least 64 for one row");
}

TEST_F(TextRowsTest, FilesAreSourcesAndSmallOnesAreReadAsOne) {
  const auto a = temp_.write("a.txt", story_ + story_), b = temp_.write("b.txt", "Once"),
             c = temp_.write("c.txt", story_ + story_ + story_),
             d = temp_.write("d.txt", "upon a time there was a cat");
  const std::vector<RowSource> sources = text_sources({a, b, c, d}, tokenizer_, 7);
  ASSERT_EQ(sources.size(), 3u);
  EXPECT_EQ(sources[0].name, a.string());
  EXPECT_EQ(sources[0].rows, text_rows({a}, tokenizer_, 7).rows);
  EXPECT_EQ(sources[1].rows, text_rows({c}, tokenizer_, 7).rows);
  EXPECT_EQ(sources[2].name, b.string() + " and 1 more");
  EXPECT_EQ(sources[2].rows, text_rows({b, d}, tokenizer_, 7).rows);
  EXPECT_THAT(message_of([&] {
                text_sources({a, b}, tokenizer_, 7);
              }),
              HasSubstr("expected at least 7 for one row"));
}

TEST_F(TextRowsTest, JsonLinesAreNoText) {
  const auto path = temp_.write("chats.jsonl", chat("a"));
  EXPECT_THAT(message_of([&] { text_rows({path}, tokenizer_, 8); }), HasSubstr("chats.jsonl: JSON lines"));
}

TEST_F(TextRowsTest, ReadsPipes) {
  const auto path = temp_ / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path) << story_ << story_; });
  const TextRows text = text_rows({path}, tokenizer_, 8);
  writer.join();
  EXPECT_EQ(text.rows, text_rows({temp_.write("a.txt", story_ + story_)}, tokenizer_, 8).rows);
}

TEST_F(TextRowsTest, CountsCutAndDroppedChats) {
  const TextRows text = chats(chat(story_ + story_) + chat("Hi there") + chat(""), 8);
  EXPECT_EQ(text.documents, 3);
  EXPECT_EQ(text.cut, 1);
  EXPECT_EQ(text.dropped, 1);
  EXPECT_EQ(text.rows.size(), 2u);
  EXPECT_EQ(text.rows[0].size(), 9u);
}

TEST_F(TextRowsTest, RefusalsNameFileAndLine) {
  const std::string two = R"({"messages": [{"role": "assistant", "content": "a"}]})";
  const std::string message = message_of([&] { chats(chat("a") + "\n" + two, 8, kAlternating); });
  EXPECT_THAT(message, HasSubstr("chats.jsonl, line 3: chat template, line 1: roles must alternate"));
  const auto path = temp_.write("chats.jsonl", chat("a"));
  EXPECT_THAT(message_of([&] { chat_rows({path}, tokenizer_, std::nullopt, 8); }),
              HasSubstr("chats.jsonl, line 1: a chat, but the model has no chat template"));
}

TEST_F(TextRowsTest, ToolsChooseTheirTemplate) {
  const auto both =
      ChatTemplate::from_config({{"chat_template",
                                  {{{"name", "default"}, {"template", "plain"}},
                                   {{"name", "tool_use"}, {"template", "{{ tools | tojson }}"}}}}});
  const auto path = temp_.write("chats.jsonl", chat("a") + chat("a", R"(, "tools": [{"name": "look_up"}])"));
  const TextRows text = chat_rows({path}, tokenizer_, both, 64);
  EXPECT_EQ(tokenizer_.decode(text.rows[0], true), "plain");
  EXPECT_EQ(tokenizer_.decode(text.rows[1], true), R"([{"name": "look_up"}])");
}

TEST_F(TextRowsTest, SameDateEveryDay) {
  const auto path = temp_.write("chats.jsonl", chat("a"));
  const ChatTemplate dated("{{ strftime_now('%d %b %Y') }}");
  EXPECT_TRUE(dated.uses_date());
  EXPECT_EQ(tokenizer_.decode(chat_rows({path}, tokenizer_, dated, 64).rows[0], true), "26 Jul 2024");
}

}  // namespace
}  // namespace mixtape
