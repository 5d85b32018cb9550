#include "mixtape/calib/data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "mixtape/calib/reference_recipe.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

std::vector<std::uint32_t> counting(std::size_t n) {
  std::vector<std::uint32_t> ids(n);
  std::iota(ids.begin(), ids.end(), 0u);
  return ids;
}

TEST(Data, RowsUseEveryTokenOnce) {
  const std::vector<TokenRow> rows = cut_rows(counting(25), {}, 4);
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[1], (TokenRow{5, 6, 7, 8, 9}));
  const std::vector<TokenRow> with_bos = cut_rows(counting(25), {99}, 4);
  ASSERT_EQ(with_bos.size(), 6u);
  EXPECT_EQ(with_bos[1], (TokenRow{99, 4, 5, 6, 7}));
}

TEST(Data, PartsNeverOverlap) {
  const CalibrationData data = split_rows(cut_rows(counting(5 * 40), {}, 4), 0, 7, 9, 3);
  EXPECT_EQ(data.train.size(), 24u);
  EXPECT_EQ(data.validation.size(), 7u);
  EXPECT_EQ(data.report.size(), 9u);
  std::set<std::uint32_t> seen;
  for (const auto* part : {&data.train, &data.validation, &data.report}) {
    for (const TokenRow& row : *part) {
      for (const std::uint32_t id : row) EXPECT_TRUE(seen.insert(id).second) << id;
    }
  }
  EXPECT_EQ(seen.size(), 200u);
}

TEST(Data, TooLittleTextIsAnError) {
  MIXTAPE_EXPECT_ERROR(split_rows(cut_rows(counting(50), {}, 4), 0, 5, 5, 0), ErrorCode::invalid_argument,
                       "found 10 different rows of text, expected at least 11");
}

TEST(Data, CountsThatNoTextCanMeetAreErrors) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const auto rows = cut_rows(counting(50), {}, 4);
  const ErrorCode code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(split_rows(rows, 0, most, most, 0), code, "expected at least 18446744073709551615");
  MIXTAPE_EXPECT_ERROR(reference_split(rows, 0, most, 32, 0), code, "expected at least 9223372036854775840");
  MIXTAPE_EXPECT_ERROR(split_rows(rows, 0, -1, 2, 0), code, "validation and report rows are -1 and 2");
}

TEST(Data, CopiesOfARowAreInOnePartAlone) {
  const std::vector<TokenRow> once = cut_rows(counting(50), {}, 4);
  std::vector<TokenRow> rows = once;
  rows.insert(rows.end(), once.begin(), once.end());
  const CalibrationData data = split_rows(rows, 0, 3, 3, 1);
  EXPECT_EQ(data.train.size(), 4u);
  std::set<TokenRow> seen;
  for (const auto* part : {&data.train, &data.validation, &data.report}) {
    for (const TokenRow& row : *part) EXPECT_TRUE(seen.insert(row).second);
  }
  const CalibrationData reference = reference_split(rows, 0, 3, 8, 1);
  EXPECT_EQ(reference.train.size(), 9u);  // as they come, as the reference program takes them
  for (const TokenRow& row : reference.report) {
    EXPECT_EQ(std::count(reference.train.begin(), reference.train.end(), row), 0);
    EXPECT_EQ(std::count(reference.validation.begin(), reference.validation.end(), row), 0);
  }
}

TEST(Data, PaddingHasNoWeight) {
  const std::vector<TokenRow> rows = {{1, 2, 3, 4}, {5, 6}};
  const Batch batch = make_batch(Device::cpu(), rows);
  EXPECT_EQ(batch.ids.to_vector<std::uint32_t>(), (std::vector<std::uint32_t>{1, 2, 3, 5, 0, 0}));
  EXPECT_EQ(batch.targets.to_vector<std::uint32_t>(), (std::vector<std::uint32_t>{2, 3, 4, 6, 0, 0}));
  EXPECT_EQ(batch.weights, (std::vector<float>{1, 1, 1, 1, 0, 0}));
  EXPECT_EQ(batch.total_weight, 4.0);
}

TEST(Data, IdsOutsideTheVocabularyAreNamed) {
  const std::vector<TokenRow> rows = {{1, 2}, {3, 512}};
  MIXTAPE_EXPECT_ERROR(check_ids(rows, 512), ErrorCode::index_out_of_range, "row 1, position 1 is token 512");
}

TEST(Data, ShuffledBatchesCoverEveryRowOncePerPass) {
  const BatchOrder order = shuffled_batches(10, 3, 5);
  for (const std::int64_t pass : {0, 1}) {
    std::set<std::size_t> seen;
    for (const auto& batch : order(pass)) seen.insert(batch.begin(), batch.end());
    EXPECT_EQ(order(pass).size(), 3u);
    EXPECT_EQ(seen.size(), 9u);
  }
  EXPECT_NE(order(0), order(1));
  EXPECT_EQ(order(1), shuffled_batches(10, 3, 5)(1));
  EXPECT_EQ(shuffled_batches(2, 3, 5)(0).size(), 1u);
}

TEST(Data, ReferenceBatchesAreSortedByLength) {
  std::vector<TokenRow> rows;
  for (const std::size_t n : {5, 3, 9, 7, 2, 8, 4}) rows.emplace_back(n, 0u);
  const auto batches = reference_batches(rows, 2, 123)(0);
  ASSERT_EQ(batches.size(), 3u);
  std::set<std::vector<std::size_t>> found(batches.begin(), batches.end());
  EXPECT_EQ(found, (std::set<std::vector<std::size_t>>{{4, 1}, {6, 0}, {3, 5}}));
  EXPECT_EQ(reference_batches(rows, 2, 123)(1), batches);
}

}  // namespace
}  // namespace mixtape
