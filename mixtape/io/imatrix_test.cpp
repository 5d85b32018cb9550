#include "mixtape/io/imatrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "mixtape/core/error.h"
#include "mixtape/io/gguf.h"
#include "mixtape/testing/gguf_builder.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

using ::testing::ElementsAre;
using testing::GgufBuilder;
using ::testing::HasSubstr;

class ImatrixFile : public ::testing::Test {
 protected:
  Imatrix read(const std::string& bytes) { return read_imatrix(directory_.write("i", bytes)); }
  std::string refusal(const std::string& bytes) {
    try {
      read(bytes);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::format) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "read";
    return "";
  }
  std::string refusal(const std::vector<float>& sums, const std::vector<float>& counts) {
    return refusal(file()
                       .tensor_f32("w.in_sum2", {2, sums.size() / 2}, sums)
                       .tensor_f32("w.counts", {1, counts.size()}, counts)
                       .bytes());
  }
  static GgufBuilder file() {
    GgufBuilder b;
    b.string("general.type", "imatrix").strings("imatrix.datasets", {"a.txt", "b.txt"});
    b.u32("imatrix.chunk_count", 3).u32("imatrix.chunk_size", 512);
    return b;
  }
  // An entry of the older form.
  static std::string entry(const std::string& name, std::int32_t calls, const std::vector<float>& values) {
    std::string bytes;
    GgufBuilder::put(bytes, static_cast<std::int32_t>(name.size()));
    bytes += name;
    GgufBuilder::put(bytes, calls);
    GgufBuilder::put(bytes, static_cast<std::int32_t>(values.size()));
    for (const float v : values) GgufBuilder::put(bytes, v);
    return bytes;
  }
  static std::string number(std::int32_t value) {
    std::string bytes;
    GgufBuilder::put(bytes, value);
    return bytes;
  }

  testing::TempDirectory directory_;
};

TEST_F(ImatrixFile, ReadsSumsAndCounts) {
  GgufBuilder b = file();
  b.tensor_f32("blk.0.attn_q.weight.in_sum2", {3}, {2, 4, 8})
      .tensor_f32("blk.0.attn_q.weight.counts", {1}, {4});
  b.tensor_f32("blk.0.ffn_up_exps.weight.in_sum2", {2, 3}, {2, 4, 0, 0, 9, 3});
  b.tensor_f32("blk.0.ffn_up_exps.weight.counts", {1, 3}, {2, 0, 3});
  const Imatrix found = read(b.bytes());
  EXPECT_THAT(found.datasets, ElementsAre("a.txt", "b.txt"));
  EXPECT_EQ(found.chunk_count, 3);
  EXPECT_EQ(found.chunk_size, 512);
  EXPECT_THAT(found.weights.at("blk.0.attn_q.weight").mean_squares, ElementsAre(0.5f, 1.0f, 2.0f));
  EXPECT_THAT(found.weights.at("blk.0.attn_q.weight").tokens, ElementsAre(4));
  EXPECT_THAT(found.weights.at("blk.0.ffn_up_exps.weight").mean_squares, ElementsAre(1, 2, 0, 0, 3, 1));
  EXPECT_THAT(found.weights.at("blk.0.ffn_up_exps.weight").tokens, ElementsAre(2, 0, 3));
}

TEST_F(ImatrixFile, ReadsTheOlderForm) {
  const std::string entries =
      number(2) + entry("blk.0.attn_q.weight", 4, {2, 4}) + entry("blk.0.ffn_down.weight", 1, {3, 0});
  const Imatrix found = read(entries + number(7) + number(5) + "a.txt");
  EXPECT_THAT(found.datasets, ElementsAre("a.txt"));
  EXPECT_EQ(found.chunk_count, 7);
  EXPECT_THAT(found.weights.at("blk.0.attn_q.weight").mean_squares, ElementsAre(0.5f, 1.0f));
  EXPECT_THAT(found.weights.at("blk.0.ffn_down.weight").mean_squares, ElementsAre(3.0f, 0.0f));
  EXPECT_EQ(read(entries).weights.size(), 2u);  // the oldest files end here
}

TEST_F(ImatrixFile, WrittenAsItIsRead) {
  Imatrix written{.weights = {{"blk.0.attn_q.weight", {{0.5f, 2.0f, 0.0f}, {8}}},
                              {"blk.0.ffn_up_exps.weight", {{1.0f, 2.0f, 0.0f, 0.0f}, {3, 0}}}},
                  .datasets = {"text"},
                  .chunk_count = 5,
                  .chunk_size = 128};
  AtomicFile file(directory_ / "x.gguf");
  write_imatrix(file, written);
  EXPECT_EQ(std::filesystem::file_size(directory_ / "x.gguf"), imatrix_bytes(written));
  const Imatrix found = read_imatrix(directory_ / "x.gguf");
  EXPECT_EQ(found.datasets, written.datasets);
  EXPECT_EQ(found.chunk_count, 5);
  EXPECT_EQ(found.chunk_size, 128);
  ASSERT_EQ(found.weights.size(), 2u);
  for (const auto& [weight, w] : written.weights) {
    EXPECT_EQ(found.weights.at(weight).mean_squares, w.mean_squares) << weight;
    EXPECT_EQ(found.weights.at(weight).tokens, w.tokens) << weight;
  }
  // As llama.cpp lays it out: no last dimension of 1.
  const GgufFile gguf(directory_ / "x.gguf");
  EXPECT_EQ(gguf.find_tensor("blk.0.attn_q.weight.in_sum2")->shape, (Shape{3}));
  EXPECT_EQ(gguf.find_tensor("blk.0.ffn_up_exps.weight.counts")->shape, (Shape{2, 1}));
}

TEST_F(ImatrixFile, RefusesWhatIsNone) {
  EXPECT_THAT(refusal(GgufBuilder().string("general.type", "model").bytes()),
              HasSubstr("general.type is not 'imatrix'"));
  EXPECT_THAT(refusal(GgufBuilder().bytes()), HasSubstr("general.type is not 'imatrix'"));
  EXPECT_THAT(refusal(file().tensor_f32("w.in_sum2", {2}, {1, 1}).bytes()),
              HasSubstr("'w': has no tensor 'w.counts'"));
  EXPECT_THAT(refusal(file().tensor_f32("w.weight", {2}, {1, 1}).bytes()), HasSubstr("tensor 'w.weight'"));
  EXPECT_THAT(refusal(file().tensor("w.in_sum2", {2}, 1, "xxxx").tensor_f32("w.counts", {1}, {1}).bytes()),
              HasSubstr("'w.in_sum2' is F16, expected F32"));
  EXPECT_THAT(refusal({1, 1, 1, 1}, {1}), HasSubstr("has sums [2,2] and 1 counts"));
  EXPECT_THAT(refusal({1, 1}, {1, 1}), HasSubstr("and 2 counts"));
  EXPECT_THAT(refusal({}, {1}), HasSubstr("expected a count for each row"));
}

TEST_F(ImatrixFile, RefusesOddValues) {
  EXPECT_THAT(refusal({1, std::nanf("")}, {1}), HasSubstr("'w': value 1 is nan"));
  EXPECT_THAT(refusal({-1, 1}, {1}), HasSubstr("value 0 is -1, expected"));
  EXPECT_THAT(refusal({INFINITY, 1}, {1}), HasSubstr("value 0 is inf"));
  EXPECT_THAT(refusal({1, 1}, {-2}), HasSubstr("a count is -2"));
  EXPECT_THAT(refusal({1, 1}, {std::nanf("")}), HasSubstr("a count is nan"));
  EXPECT_THAT(refusal({1, 1}, {1e30f}), HasSubstr("a count is 1e+30"));
  EXPECT_THAT(refusal(number(1) + entry("w", 1, {1, std::nanf("")})), HasSubstr("'w': value 1 is nan"));
}

TEST_F(ImatrixFile, EveryCutOfTheOlderFormIsRefused) {
  const std::string entries = number(1) + entry("w.weight", 2, {1, 2, 3});
  const std::string whole = entries + number(7) + number(5) + "a.txt";
  for (std::size_t size = 0; size < whole.size(); ++size) {
    if (size == entries.size()) continue;
    EXPECT_THAT(refusal(whole.substr(0, size)), HasSubstr("at byte")) << size;
  }
  EXPECT_THAT(refusal(whole + "x"), HasSubstr("1 bytes behind the dataset"));
  EXPECT_THAT(refusal(number(0)), HasSubstr("number of entries is 0, expected 1 to"));
  EXPECT_THAT(refusal(number(-5)), HasSubstr("number of entries is -5"));
  EXPECT_THAT(refusal(number(1) + number(0)), HasSubstr("name is 0"));
  EXPECT_THAT(refusal(number(1) + number(1) + "w" + number(-1)), HasSubstr("number of calls is -1"));
  EXPECT_THAT(refusal(number(1) + number(1) + "w" + number(1) + number(2147483647)),
              HasSubstr("values needs 8589934588 bytes"));
  EXPECT_THAT(refusal(number(2) + entry("w", 1, {1}) + entry("w", 1, {1})), HasSubstr("'w': is there twice"));
}

}  // namespace
}  // namespace mixtape
