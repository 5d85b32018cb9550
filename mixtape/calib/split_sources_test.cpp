#include "mixtape/calib/split_sources.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "mixtape/calib/random_rows.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

std::vector<TokenRow> rows_of(std::size_t count, std::uint64_t seed, std::size_t length = 100) {
  return random_rows(count, length, 30000, 1000 * seed);
}

std::vector<TokenRow> join(std::vector<TokenRow> a, const std::vector<TokenRow>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::int64_t count_of(const std::vector<TokenRow>& rows, const std::vector<TokenRow>& source) {
  const std::set<TokenRow> own(source.begin(), source.end());
  return std::count_if(rows.begin(), rows.end(), [&](const TokenRow& row) { return own.contains(row); });
}

// Straightforward: whether a run of kSharedTokens tokens is in both.
bool share_a_run(const TokenRow& a, const TokenRow& b) {
  for (std::size_t i = 0; i + kSharedTokens <= a.size(); ++i) {
    const auto begin = a.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::search(b.begin(), b.end(), begin, begin + kSharedTokens) != b.end()) return true;
  }
  return false;
}

TEST(SplitSources, OneSourceIsSplitAsRowsAre) {
  const std::vector<TokenRow> rows = rows_of(40, 1);
  for (const std::int64_t train : {0, 10, 100}) {
    const CalibrationData wanted = split_rows(join(rows, rows), train, 5, 7, 3);
    const SourceSplit found = split_sources({{"a", join(rows, rows)}}, {train, 5, 7, 3});
    EXPECT_EQ(found.data.train, wanted.train);
    EXPECT_EQ(found.data.validation, wanted.validation);
    EXPECT_EQ(found.data.report, wanted.report);
    EXPECT_EQ(found.sources[0].copies, 40);
    EXPECT_EQ(found.sources[0].shared, 0);
    ASSERT_EQ(found.data.report_groups.size(), 1u);
    EXPECT_EQ(found.data.report_groups[0].rows, 7u);
  }
}

TEST(SplitSources, EachSourceIsInEachPart) {
  const auto a = rows_of(60, 1), b = rows_of(30, 2), c = rows_of(5, 3);
  const SourceSplit s = split_sources({{"a", a}, {"b", b}, {"c", c}}, {0, 10, 19, 3});
  EXPECT_EQ(s.data.report.size(), 19u);
  EXPECT_EQ(s.data.validation.size(), 10u);
  EXPECT_EQ(s.data.train.size(), 95u - 29u);
  // 19 x 60/95, 30/95, 5/95; 10 of what is left, 48, 24 and 4.
  EXPECT_EQ(s.sources[0].report, 12);
  EXPECT_EQ(s.sources[1].report, 6);
  EXPECT_EQ(s.sources[2].report, 1);
  EXPECT_EQ(s.sources[0].validation, 6);
  EXPECT_EQ(s.sources[1].validation, 3);
  EXPECT_EQ(s.sources[2].validation, 1);
  EXPECT_EQ(count_of(s.data.validation, c), 1);
  EXPECT_EQ(count_of(s.data.train, a), s.sources[0].train);
  const std::vector<TokenRow> first(s.data.report.begin(), s.data.report.begin() + 12);
  EXPECT_EQ(count_of(first, a), 12);
  EXPECT_EQ(s.data.report_groups[1].name, "b");
  EXPECT_EQ(s.data.report_groups[1].rows, 6u);
  // Mixed, so that the first rows are of every source.
  const std::vector<TokenRow> begin(s.data.train.begin(), s.data.train.begin() + 20);
  EXPECT_GT(count_of(begin, b), 0);
}

TEST(SplitSources, SmallSourcesGetARowEach) {
  const SourceSplit s =
      split_sources({{"a", rows_of(500, 1)}, {"b", rows_of(4, 2)}, {"c", rows_of(4, 3)}}, {0, 4, 4, 3});
  for (const SourceCounts& c : s.sources) EXPECT_GE(std::min({c.report, c.validation, c.train}), 1) << c.name;
  EXPECT_EQ(s.data.report.size(), 4u);
  EXPECT_EQ(split_sources({{"a", rows_of(9, 1)}, {"b", rows_of(9, 2)}}, {0, 1, 1, 3}).data.report.size(), 2u);
}

TEST(SplitSources, SharesHoldUntilASourceRunsOut) {
  const auto a = rows_of(100, 1), b = rows_of(30, 2);
  const SourceSplit s = split_sources({{"a", a, 1.0}, {"b", b, 3.0}}, {0, 4, 4, 3});
  // Report 1 and 3, validation 1 and 3; b has 27 rows left, a takes a third of that.
  EXPECT_EQ(s.sources[1].report, 3);
  EXPECT_EQ(s.sources[1].validation, 3);
  EXPECT_EQ(s.sources[1].train, 24);
  EXPECT_EQ(s.sources[0].report, 1);
  EXPECT_EQ(s.sources[0].train + s.sources[0].validation, 9);
  // A source without one has 1; fewer rows keep the shares.
  const SourceSplit few = split_sources({{"a", a}, {"b", b, 3.0}}, {16, 4, 4, 3});
  EXPECT_EQ(few.sources[0].train, 4);
  EXPECT_EQ(few.sources[1].train, 12);
  MIXTAPE_EXPECT_ERROR(split_sources({{"a", a, 0.0}}, {0, 4, 4, 3}), ErrorCode::invalid_argument,
                       "the share of 'a' is 0, expected a number above 0");
}

// The same text cut at other places: rows share long runs, and none is equal.
TEST(SplitSources, TextOfTheReportIsLeftOut) {
  TokenRow book;
  for (const TokenRow& row : rows_of(50, 1)) book.insert(book.end(), row.begin(), row.end());
  const TokenRow later(book.begin() + 1000, book.begin() + 2000);
  const std::vector<TokenRow> train = cut_rows(book, {7}, 128), report = cut_rows(later, {7}, 100);
  const SourceSplit s =
      split_sources({{"book", train}, {"part", report, {}, true}, {"other", rows_of(30, 2)}}, {0, 4, 4, 3});
  std::int64_t shared = 0;
  for (const TokenRow& row : train) {
    shared +=
        std::any_of(report.begin(), report.end(), [&](const TokenRow& r) { return share_a_run(row, r); });
  }
  EXPECT_GT(shared, 5);
  EXPECT_EQ(s.sources[0].shared, shared);
  for (const auto* part : {&s.data.train, &s.data.validation}) {
    for (const TokenRow& row : *part) {
      for (const TokenRow& r : report) EXPECT_FALSE(share_a_run(row, r));
    }
  }
  // It is in the report alone, last; the rows of a report file are the report's at most.
  EXPECT_EQ(s.sources[1].report, 4);
  EXPECT_EQ(s.sources[1].train + s.sources[1].validation, 0);
  EXPECT_EQ(s.data.report_groups.back().name, "part");
  EXPECT_EQ(count_of(s.data.report, report), 4);
  EXPECT_EQ(count_of(s.data.train, report), 0);
}

TEST(SplitSources, RowsOfTheReportShareNothingWithTraining) {
  std::vector<TokenRow> rows = rows_of(20, 1);
  for (const TokenRow& row : rows_of(20, 1)) {  // each row a second time, but for its last tokens
    TokenRow other(row.begin(), row.begin() + 64);
    other.resize(100, 1);
    rows.push_back(other);
  }
  const SourceSplit s = split_sources({{"a", rows}}, {0, 4, 6, 3});
  EXPECT_GT(s.sources[0].shared, 0);
  EXPECT_EQ(s.sources[0].shared + s.sources[0].train + 4 + 6, 40);
  for (const TokenRow& row : s.data.train) {
    for (const TokenRow& r : s.data.report) EXPECT_FALSE(share_a_run(row, r));
  }
}

TEST(SplitSources, AHeadThatAllRowsHaveIsNotShared) {
  const TokenRow head = rows_of(1, 9, 80)[0];
  std::vector<TokenRow> chats;
  for (const TokenRow& row : rows_of(20, 1, 50)) {
    chats.push_back(head);
    chats.back().insert(chats.back().end(), row.begin(), row.end());
  }
  EXPECT_EQ(split_sources({{"chats", chats}}, {0, 4, 4, 3}).sources[0].shared, 0);
}

TEST(SplitSources, CopiesAcrossSourcesAreUsedOnce) {
  const auto a = rows_of(20, 1), b = rows_of(20, 2);
  const SourceSplit s = split_sources({{"a", a}, {"b", join(b, a)}}, {0, 4, 4, 3});
  EXPECT_EQ(s.sources[0].copies, 0);
  EXPECT_EQ(s.sources[1].copies, 20);
  EXPECT_EQ(s.sources[1].found, 40);
  std::set<TokenRow> seen;
  for (const auto* part : {&s.data.train, &s.data.validation, &s.data.report}) {
    for (const TokenRow& row : *part) EXPECT_TRUE(seen.insert(row).second);
  }
  EXPECT_EQ(seen.size(), 40u);
}

TEST(SplitSources, TooFewRowsAreNamed) {
  const auto a = rows_of(20, 1);
  const ErrorCode code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(split_sources({{"a", rows_of(9, 1)}}, {0, 5, 5, 3}), code,
                       "found 9 different rows of text, expected at least 11");
  MIXTAPE_EXPECT_ERROR(
      split_sources({{"a", a}, {"b", rows_of(2, 2)}}, {0, 4, 4, 3}), code,
      "found 2 different rows in 'b', expected at least 3 for report, validation and training");
  MIXTAPE_EXPECT_ERROR(split_sources({{"a", a}, {"a again", a, {}, true}}, {0, 4, 4, 3}), code,
                       "found 0 different rows in 'a' (copies: 0, rows that share text with the report: 20), "
                       "expected at least ");
  MIXTAPE_EXPECT_ERROR(split_sources({{"a", a, {}, true}}, {0, 4, 4, 3}), code,
                       "found no source to train on");
}

TEST(SplitSources, SameSeedSameRows) {
  const auto a = rows_of(40, 1), b = rows_of(30, 2);
  const auto run = [&](std::uint64_t seed) {
    return split_sources({{"a", a}, {"b", b}}, {0, 4, 4, seed}).data.train;
  };
  EXPECT_EQ(run(3), run(3));
  EXPECT_NE(run(3), run(4));
}

}  // namespace
}  // namespace mixtape
