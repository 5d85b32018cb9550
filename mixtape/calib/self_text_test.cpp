#include "mixtape/calib/self_text.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "mixtape/calib/random_rows.h"
#include "mixtape/calib/teacher.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

class SelfTextTest : public ::testing::Test {
 protected:
  std::vector<TokenRow> rows_of(const Beginnings& beginnings, std::int64_t rows, std::uint64_t seed = 5) {
    return self_rows(model_.model(), tape_, beginnings, rows, 19, 4, seed);
  }

  Tape tape_{Device::cpu()};
  std::unique_ptr<ModelSource> source_ = open_model("tests/data/parity/llama");
  Teacher model_{*source_, DType::f32, false, tape_};
};

// The rows of the first token alone are draws of sample(), the seed moving on by the rows that there are.
TEST_F(SelfTextTest, TheFirstTokenAloneIsContinued) {
  const std::vector<TokenRow> found = rows_of({.first = 1}, 6);
  ASSERT_EQ(found.size(), 6u);
  std::vector<TokenRow> wanted =
      sample(model_.model(), tape_, std::vector<TokenRow>(4, TokenRow{1}), 19, {.seed = 5});
  const std::vector<TokenRow> more =
      sample(model_.model(), tape_, std::vector<TokenRow>(2, TokenRow{1}), 19, {.seed = 9});
  wanted.insert(wanted.end(), more.begin(), more.end());
  EXPECT_EQ(found, wanted);
  EXPECT_NE(found, rows_of({.first = 1}, 6, 6));
}

TEST_F(SelfTextTest, KindsShareTheRows) {
  const std::vector<TokenRow> texts = random_rows(9, 30, 263, 3);
  const Beginnings both = {.first = 1, .chat = {}, .ends = {}, .texts = texts};
  const std::vector<TokenRow> rows = rows_of(both, 7);
  ASSERT_EQ(rows.size(), 7u);
  for (const TokenRow& row : rows) EXPECT_EQ(row.size(), 20u);
  for (std::size_t r = 0; r < 4; ++r) EXPECT_EQ(rows[r][0], 1u) << r;
  std::vector<TokenRow> begun;
  for (std::size_t r = 4; r < 7; ++r) {
    begun.emplace_back(rows[r].begin(), rows[r].begin() + kBeginning);
    const auto is_begin = [&](const TokenRow& text) {
      return std::equal(begun.back().begin(), begun.back().end(), text.begin());
    };
    EXPECT_TRUE(std::any_of(texts.begin(), texts.end(), is_begin)) << r;
  }
  EXPECT_NE(begun[0], begun[1]);  // another text each
  EXPECT_EQ(rows, rows_of(both, 7));
}

// Between two turns stands what the template puts there, all of it, in turn.
TEST_F(SelfTextTest, TurnsFollowTheTemplate) {
  const ChatTurns turns = {{1, 200, 201}, {202, 203, 204}, {205, 206}};
  std::vector<std::uint32_t> every_token;
  for (std::uint32_t id = 0; id < 40; ++id) every_token.push_back(id);  // a turn ends soon
  const std::vector<TokenRow> rows =
      rows_of({.first = {}, .chat = turns, .ends = every_token, .texts = {}}, 5);
  std::size_t ended = 0;
  for (const TokenRow& row : rows) {
    EXPECT_EQ(TokenRow(row.begin(), row.begin() + 3), turns.begin);
    std::size_t turn = 0;
    for (std::size_t i = 3; i < row.size();) {
      const TokenRow& next = turn % 2 == 0 ? turns.to_assistant : turns.to_user;
      if (row[i] != next[0]) {
        EXPECT_GE(row[i], 40u) << "a token that ends a turn stayed";
        ++i;
        continue;
      }
      for (std::size_t k = 0; k < next.size() && i < row.size(); ++k, ++i) EXPECT_EQ(row[i], next[k]);
      ++turn;
    }
    ended += turn;
  }
  EXPECT_GT(ended, 5u);
}

TEST_F(SelfTextTest, BeginningsThatCannotBe) {
  const ErrorCode code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(rows_of({}, 3), code, "found no beginning");
  const ChatTurns longer = {TokenRow(20, 1), {2}, {3}};
  MIXTAPE_EXPECT_ERROR(rows_of({.first = {}, .chat = longer, .ends = {}, .texts = {}}, 3), code,
                       "a beginning has 20 tokens, expected at most 19");
  MIXTAPE_EXPECT_ERROR(rows_of({.first = {}, .chat = {}, .ends = {}, .texts = {{1, 2, 3}}}, 3), code,
                       "found no text of more than 8 tokens");
  const Beginnings one_fits = {.first = 1, .chat = longer, .ends = {}, .texts = {}};
  EXPECT_EQ(rows_of(one_fits, 1).size(), 1u);  // none of that kind
  EXPECT_NO_THROW(check(one_fits, 1, 19));
  MIXTAPE_EXPECT_ERROR(check(one_fits, 2, 19), code, "a beginning has 20 tokens, expected at most 19");
}

TEST(ChatTurns, AreWhatStandsBetweenTheMessages) {
  const Tokenizer tokenizer = Tokenizer::load("tests/data/stories260k");
  const ChatTemplate chat("<s>{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}</s>{% endfor %}");
  const auto turns = chat_turns(chat, tokenizer);
  ASSERT_TRUE(turns);
  EXPECT_EQ(turns->begin, tokenizer.encode("<s>[user] ", false));
  EXPECT_EQ(turns->to_assistant, tokenizer.encode("</s>[assistant] ", false));
  EXPECT_EQ(turns->to_user, tokenizer.encode("</s>[user] ", false));
  EXPECT_FALSE(chat_turns(ChatTemplate("{{ raise_exception('no') }}"), tokenizer));
  EXPECT_FALSE(chat_turns(ChatTemplate("{{ messages[0].content }}"), tokenizer));
  EXPECT_FALSE(chat_turns(ChatTemplate("<s>{% for m in messages %}{{ m.content }}{% endfor %}"), tokenizer));
  EXPECT_FALSE(chat_turns(ChatTemplate("<s>{{ messages | length }}"), tokenizer));
}

}  // namespace
}  // namespace mixtape
