#include "mixtape/calib/base_logits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "mixtape/calib/random_rows.h"
#include "mixtape/calib/teacher.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class T>
T at(const std::string& bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, &bytes.at(offset), sizeof(T));
  return value;
}

class BaseLogitsTest : public ::testing::Test {
 protected:
  std::filesystem::path save(std::int64_t batch = 2) {
    AtomicFile file(temp_ / "base");
    save_base_logits(file, teacher_.model(), tape_, rows_, batch);
    file.commit();
    return temp_ / "base";
  }

  // What is said of the file with `change` made.
  template <class Change>
  std::string refusal(const Change& change) {
    std::string bytes = bytes_of(save());
    change(bytes);
    try {
      const BaseLogits base(temp_.write("changed", bytes));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::format);
      return error.what();
    }
    return "nothing";
  }

  Tape tape_{Device::cpu()};
  testing::TempDirectory temp_;
  std::unique_ptr<ModelSource> llama_ = open_model("tests/data/parity/llama"),
                               qwen3_ = open_model("tests/data/parity/qwen3");
  Teacher model_{*llama_, DType::f32, false, tape_}, teacher_{*qwen3_, DType::f32, false, tape_};
  std::vector<TokenRow> rows_ = random_rows(3, 20, 263, 3);  // positions 10 to 18 are held
};

// Read as the format says, from the bytes alone, against log-probabilities in f64.
TEST_F(BaseLogitsTest, TheFileIsWhatItsFormatSays) {
  const std::string bytes = bytes_of(save());
  const std::size_t record = 8 + 2 * 264, head = 20 + 4 * 3 * 20;
  ASSERT_EQ(bytes.size(), head + 3 * 9 * record);
  EXPECT_EQ(bytes.size(), base_logits_bytes(3, 20, 263));
  EXPECT_EQ(bytes.substr(0, 8), "_logits_");
  EXPECT_EQ(at<std::uint32_t>(bytes, 8), 20u);
  EXPECT_EQ(at<std::int32_t>(bytes, 12), 263);
  EXPECT_EQ(at<std::int32_t>(bytes, 16), 3);
  for (std::size_t r = 0; r < 3; ++r) {
    const Batch batch = make_batch(tape_.device(), std::span(rows_).subspan(r, 1));
    const Var logits = teacher_.model().logits(teacher_.model().hidden(batch.ids));
    tape_.encoder().commit_and_wait();
    const std::vector<float> values = logits.value().to_vector<float>();
    for (std::size_t i = 0; i < 20; ++i) {
      EXPECT_EQ(at<std::uint32_t>(bytes, 20 + 4 * (20 * r + i)), rows_[r][i]);
    }
    for (std::size_t position = 10; position < 19; ++position) {
      double sum = 0.0;
      for (std::size_t c = 0; c < 263; ++c) sum += std::exp(static_cast<double>(values[position * 263 + c]));
      const std::size_t begin = head + (9 * r + position - 10) * record;
      const double scale = at<float>(bytes, begin), least = at<float>(bytes, begin + 4);
      for (std::size_t c = 0; c < 263; ++c) {
        const double wanted = static_cast<double>(values[position * 263 + c]) - std::log(sum);
        const double found = least + scale * at<std::uint16_t>(bytes, begin + 8 + 2 * c);
        EXPECT_NEAR(found, std::max(wanted, least), 1.3e-4) << r << " " << position << " " << c;
      }
      EXPECT_EQ(at<std::uint16_t>(bytes, begin + 8 + 2 * 263), 0);
    }
  }
}

TEST_F(BaseLogitsTest, ComparingWithTheFileIsComparingWithTheTeacher) {
  BaseLogits base(save());
  const Evaluation whole = evaluate(model_.model(), &teacher_.model(), tape_, rows_, 2);
  for (const std::int64_t batch : {1, 2, 3}) {
    const Evaluation e = evaluate(model_.model(), base, tape_, base.rows(), batch);
    ASSERT_EQ(e.positions, 3 * 9);
    EXPECT_EQ(e.by_position.row_ends, (std::vector<std::size_t>{9, 18, 27}));
    for (std::size_t i = 0; i < 27; ++i) {
      const std::size_t same = i / 9 * 19 + 10 + i % 9;
      EXPECT_NEAR(e.by_position.nll[i], whole.by_position.nll[same], 1e-5);
      EXPECT_NEAR(e.by_position.teacher_nll[i], whole.by_position.teacher_nll[same], 1.3e-4);
      EXPECT_NEAR(e.by_position.kl[i], whole.by_position.kl[same], 2e-4);
    }
  }
  EXPECT_NEAR(evaluate(teacher_.model(), base, tape_, base.rows(), 2).kl->mean, 0.0, 2e-5);
}

TEST_F(BaseLogitsTest, RowsBeginWithWhatGoesBeforeAText) {
  for (TokenRow& row : rows_) row[0] = 1;
  BaseLogits base(save());
  base.begin_rows_with(std::vector<std::uint32_t>{});
  EXPECT_EQ(base.rows(), rows_);
  base.begin_rows_with(std::vector<std::uint32_t>{7});
  for (TokenRow& row : rows_) row[0] = 7;
  EXPECT_EQ(base.rows(), rows_);
}

// Codes that span 16 nats, half of the vocabulary at code 0: the KL is the sum over the other half, in f64 from the
// file's bytes.
TEST_F(BaseLogitsTest, TokensOfCodeZeroAreLeftOut) {
  std::string bytes = bytes_of(save());
  const std::size_t record = 8 + 2 * 264, head = 20 + 4 * 3 * 20;
  const float scale = 16.0f / 65535.0f, least = -16.5f;
  for (std::size_t r = 0; r < 27; ++r) {
    std::memcpy(&bytes[head + r * record], &scale, 4);
    std::memcpy(&bytes[head + r * record + 4], &least, 4);
    for (std::size_t c = 0; c < 130; ++c)
      bytes[head + r * record + 8 + 2 * c] = bytes[head + r * record + 9 + 2 * c] = 0;
  }
  BaseLogits base(temp_.write("half", bytes));
  const Evaluation e = evaluate(model_.model(), base, tape_, base.rows(), 2);
  for (std::size_t r = 0; r < 3; ++r) {
    const Batch batch = make_batch(tape_.device(), std::span(rows_).subspan(r, 1));
    const Var logits = model_.model().logits(model_.model().hidden(batch.ids));
    tape_.encoder().commit_and_wait();
    const std::vector<float> values = logits.value().to_vector<float>();
    for (std::size_t i = 0; i < 9; ++i) {
      const float* q = &values[(10 + i) * 263];
      double sum = 0.0, kl = 0.0;
      for (std::size_t c = 0; c < 263; ++c) sum += std::exp(static_cast<double>(q[c]));
      const std::size_t begin = head + (9 * r + i) * record;
      for (std::size_t c = 130; c < 263; ++c) {
        const double p = at<float>(bytes, begin + 4) + static_cast<double>(at<float>(bytes, begin)) *
                                                           at<std::uint16_t>(bytes, begin + 8 + 2 * c);
        kl += std::exp(p) * (p - static_cast<double>(q[c]) + std::log(sum));
      }
      EXPECT_NEAR(e.by_position.kl[9 * r + i], kl, 1e-5) << r << " " << i;
      const std::uint32_t right = rows_[r][11 + i];
      if (right < 130) {
        EXPECT_FLOAT_EQ(e.by_position.teacher_nll[9 * r + i], -at<float>(bytes, begin + 4));
      }
    }
  }
}

TEST_F(BaseLogitsTest, BytesDontDependOnTheBatch) {
  const std::string bytes = bytes_of(save(1));
  EXPECT_EQ(bytes, bytes_of(save(3)));
}

TEST_F(BaseLogitsTest, OtherFilesAreRefused) {
  const auto cut = [](std::string& bytes) { bytes.resize(bytes.size() - 1); };
  EXPECT_NE(
      refusal(cut).find(
          "found 14731 bytes, expected 14732 for 3 rows of 20 tokens, vocabulary 263; the file is cut off"),
      std::string::npos)
      << refusal(cut);
  const auto longer = [](std::string& bytes) { bytes += "x"; };
  EXPECT_NE(refusal(longer).find("found 14733 bytes, expected 14732"), std::string::npos) << refusal(longer);
  const auto empty = [](std::string& bytes) { bytes.clear(); };
  EXPECT_NE(refusal(empty).find("expected one that begins with _logits_"), std::string::npos);
  const auto other = [](std::string& bytes) { bytes[0] = 'x'; };
  EXPECT_NE(refusal(other).find("expected one that begins with _logits_"), std::string::npos);
  const auto negative = [](std::string& bytes) { bytes[19] = '\xff'; };
  EXPECT_NE(refusal(negative).find("rows of 20 tokens, vocabulary 263, expected 1 row"), std::string::npos);
  const auto huge = [](std::string& bytes) { bytes[15] = bytes[19] = '\x7f'; };
  EXPECT_NE(refusal(huge).find("bytes, expected "), std::string::npos) << refusal(huge);
  const auto token = [](std::string& bytes) { bytes[20 + 4 * 21 + 1] = 'x'; };
  EXPECT_NE(refusal(token).find("row 1, position 1 is token"), std::string::npos) << refusal(token);
}

TEST_F(BaseLogitsTest, OtherRowsAndVocabulariesAreRefused) {
  BaseLogits base(save());
  base.check_vocabulary(263);
  base.check_rows(rows_);
  MIXTAPE_EXPECT_ERROR(base.check_vocabulary(512), ErrorCode::format,
                       "base: log-probabilities of 263 tokens, expected the model's 512");
  std::vector<TokenRow> other = rows_;
  other[2][7] = (other[2][7] + 1) % 263;
  MIXTAPE_EXPECT_ERROR(base.check_rows(other), ErrorCode::format, "made from other text: row 2, token 7 is ");
  MIXTAPE_EXPECT_ERROR(evaluate(model_.model(), base, tape_, other, 3), ErrorCode::invalid_argument,
                       "the batch's tokens are not the file's");
  MIXTAPE_EXPECT_ERROR(base.check_rows(random_rows(3, 21, 263, 3)), ErrorCode::format,
                       "made from rows of 20 tokens, expected 21");
  MIXTAPE_EXPECT_ERROR(base.check_rows(random_rows(4, 20, 263, 3)), ErrorCode::format,
                       "made from 3 rows, expected the text's 4");
  AtomicFile file(temp_ / "new");
  rows_[1].pop_back();
  MIXTAPE_EXPECT_ERROR(save_base_logits(file, teacher_.model(), tape_, rows_, 2), ErrorCode::invalid_argument,
                       "rows have 20 and 19 tokens, expected one length");
  MIXTAPE_EXPECT_ERROR(save_base_logits(file, teacher_.model(), tape_, random_rows(3, 2, 263, 3), 2),
                       ErrorCode::invalid_argument, "rows have 2 tokens, expected 3 or more");
}

}  // namespace
}  // namespace mixtape
