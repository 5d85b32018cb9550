#include "mixtape/io/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "mixtape/core/error.h"
#include "mixtape/testing/gguf_builder.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::GgufBuilder;
using ::testing::HasSubstr;

class Gguf : public ::testing::Test {
 protected:
  GgufFile open(const std::string& bytes) { return GgufFile(directory_.write("x.gguf", bytes)); }

  // The message with which the bytes are refused; every one names the file.
  std::string refusal(const std::string& bytes, ErrorCode wanted = ErrorCode::format) {
    try {
      open(bytes);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), wanted) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("x.gguf"));
      return error.what();
    }
    ADD_FAILURE() << "opened";
    return "";
  }
  std::string refusal_of_dims(const std::vector<std::uint64_t>& dims, std::uint32_t type) {
    return refusal(GgufBuilder().tensor("w", dims, type, "").bytes());
  }

  testing::TempDirectory directory_;
};

TEST_F(Gguf, AllValueTypes) {
  GgufBuilder b;
  b.scalar<std::uint8_t>("u8", 0, 200)
      .scalar<std::int8_t>("i8", 1, -3)
      .scalar<std::uint16_t>("u16", 2, 60000);
  b.scalar<std::int16_t>("i16", 3, -300).u32("u32", 4000000000u).scalar<std::int32_t>("i32", 5, -70000);
  b.f32("f32", 0.5f).boolean("yes", true).boolean("no", false).string("s", "text").string("empty", "");
  b.scalar<std::uint64_t>("u64", 10, 1ull << 40).scalar<std::int64_t>("i64", 11, -(1ll << 40));
  b.scalar<double>("f64", 12, 0.1).strings("ss", {"a", "", "bc"});
  b.array<std::int32_t>("ii", 5, {1, -2})
      .array<float>("ff", 6, {1.5f, -2})
      .array<std::uint8_t>("bb", 7, {1, 0});
  const GgufFile file = open(b.bytes());
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.integer("u8"), 200);
  EXPECT_EQ(file.integer("i8"), -3);
  EXPECT_EQ(file.integer("u16"), 60000);
  EXPECT_EQ(file.integer("i16"), -300);
  EXPECT_EQ(file.integer("u32"), 4000000000);
  EXPECT_EQ(file.integer("i32"), -70000);
  EXPECT_EQ(file.integer("u64"), 1ll << 40);
  EXPECT_EQ(file.integer("i64"), -(1ll << 40));
  EXPECT_EQ(file.number("f32"), 0.5);
  EXPECT_EQ(file.number("f64"), 0.1);
  EXPECT_EQ(file.number("i8"), -3.0);
  EXPECT_TRUE(file.boolean("yes"));
  EXPECT_FALSE(file.boolean("no"));
  EXPECT_EQ(file.string("s"), "text");
  EXPECT_EQ(file.string("empty"), "");
  EXPECT_THAT(file.strings("ss"), ElementsAre("a", "", "bc"));
  EXPECT_THAT(file.integers("ii"), ElementsAre(1, -2));
  EXPECT_THAT(file.numbers("ff"), ElementsAre(1.5, -2.0));
  EXPECT_EQ(file.find("bb")->count, 2u);
  EXPECT_FALSE(file.has("none"));
}

TEST_F(Gguf, NestedArraysArePassedOver) {
  std::string nested = GgufBuilder::array_head(9, 2);
  nested += GgufBuilder::array_head(0, 3) + "abc" + GgufBuilder::array_head(8, 0);
  EXPECT_EQ(open(GgufBuilder().raw("n", 9, nested).u32("after", 7).bytes()).integer("after"), 7);
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += GgufBuilder::array_head(9, 1);
  EXPECT_THAT(refusal(GgufBuilder().raw("n", 9, deep + GgufBuilder::array_head(0, 0)).bytes()),
              HasSubstr("nest"));
}

TEST_F(Gguf, GettersRefuseOtherKinds) {
  const GgufFile file = open(GgufBuilder()
                                 .string("s", "text")
                                 .f32("f", 1)
                                 .array<std::int32_t>("ii", 5, {1})
                                 .scalar<std::uint64_t>("big", 10, 1ull << 63)
                                 .bytes());
  EXPECT_THROW(file.integer("s"), Error);
  EXPECT_THROW(file.integer("f"), Error);
  EXPECT_THROW(file.integer("ii"), Error);
  EXPECT_THROW(file.integer("big"), Error);
  EXPECT_THROW(file.number("s"), Error);
  EXPECT_THROW(file.boolean("f"), Error);
  EXPECT_THROW(file.string("ii"), Error);
  EXPECT_THROW(file.strings("ii"), Error);
  EXPECT_THROW(file.strings("s"), Error);
  EXPECT_THROW(file.integers("f"), Error);
  EXPECT_THROW(file.numbers("s"), Error);
  try {
    file.integer("none");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("lacks 'none'"));
  }
}

TEST_F(Gguf, VersionsAndMagic) {
  GgufBuilder b;
  b.u32("k", 1);
  b.version = 2;
  EXPECT_EQ(open(b.bytes()).version(), 2u);
  b.version = 1;
  EXPECT_THAT(refusal(b.bytes()), HasSubstr("version is 1"));
  b.version = 4;
  EXPECT_THAT(refusal(b.bytes()), HasSubstr("version is 4"));
  b.version = 3u << 24;
  EXPECT_THAT(refusal(b.bytes()), HasSubstr("big-endian"));
  EXPECT_THAT(refusal("GGML" + b.bytes().substr(4)), HasSubstr("GGUF"));
  refusal("");
  EXPECT_THROW(GgufFile(directory_.path()), Error);
  EXPECT_THROW(GgufFile(directory_ / "none.gguf"), Error);
}

TEST_F(Gguf, EveryTruncationIsRefused) {
  const std::string whole = GgufBuilder()
                                .string("s", "text")
                                .strings("ss", {"a", "bc"})
                                .tensor_f32("w", {2, 2}, {1, 2, 3, 4})
                                .bytes();
  open(whole);
  const std::size_t needed = whole.size() - 16;  // what follows is padding
  for (std::size_t size = 0; size < needed; ++size) refusal(whole.substr(0, size));
}

TEST_F(Gguf, TensorsLastDimensionFirstInFile) {
  const GgufFile file =
      open(GgufBuilder().tensor_f32("w", {3, 2}, {1, 2, 3, 4, 5, 6}).tensor_f32("scalar", {}, {7}).bytes());
  const GgufTensor* w = file.find_tensor("w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->shape, (Shape{2, 3}));
  EXPECT_EQ(w->type, GgufType::f32);
  std::vector<float> row(3);
  decode_gguf_blocks(w->type, w->rows(1, 2), row);
  EXPECT_THAT(row, ElementsAre(4, 5, 6));
  EXPECT_EQ(file.find_tensor("scalar")->shape, Shape{});
  EXPECT_EQ(file.find_tensor("scalar")->bytes.size(), 4u);
  EXPECT_EQ(file.find_tensor("v"), nullptr);
}

TEST_F(Gguf, J1_TooManyDimensions) {
  EXPECT_THAT(refusal_of_dims({1, 1, 1, 1, 1}, 0),
              AllOf(HasSubstr("at byte"), HasSubstr("'w' has 5 dimensions")));
}

TEST_F(Gguf, J1_TypeIdOutOfRange) {
  for (const std::uint32_t type : {4u, 5u, 36u, 1000u, 0xffffffffu}) {
    EXPECT_THAT(refusal_of_dims({32}, type), AllOf(HasSubstr("at byte"), HasSubstr(str("type id ", type))));
  }
  const std::string bytes = GgufBuilder().tensor("w", {256}, 23, "").bytes();
  EXPECT_THAT(refusal(bytes, ErrorCode::not_supported), AllOf(HasSubstr("'w'"), HasSubstr("IQ4_XS")));
}

TEST_F(Gguf, J1_ValueTypeOutOfRange) {
  EXPECT_THAT(refusal(GgufBuilder().raw("k", 13, "12345678").bytes()), HasSubstr("value type is 13"));
  const std::string bytes = GgufBuilder().raw("k", 9, GgufBuilder::array_head(77, 0)).bytes();
  EXPECT_THAT(refusal(bytes), HasSubstr("value type is 77"));
}

TEST_F(Gguf, J1_LengthsBeyondTheFile) {
  for (const std::uint64_t length : {1ull << 60, 1ull << 61, 1ull << 63, ~0ull, 1000ull}) {
    std::string text;
    GgufBuilder::put(text, length);
    EXPECT_THAT(refusal(GgufBuilder().raw("k", 8, text).bytes()),
                AllOf(HasSubstr("at byte"), HasSubstr(str(length))));
    for (const std::uint32_t element : {0u, 4u, 8u, 9u, 10u}) {
      const std::string array = GgufBuilder::array_head(element, length);
      EXPECT_THAT(refusal(GgufBuilder().raw("k", 9, array).bytes()),
                  AllOf(HasSubstr("array length"), HasSubstr(str(length))));
    }
  }
}

TEST_F(Gguf, J1_CountsBeyondTheFile) {
  for (const std::uint64_t count : {3ull, 1ull << 32, 1ull << 61, ~0ull - 1}) {
    GgufBuilder b;
    b.u32("k", 1).tensor_f32("w", {1}, {1});
    b.extra_tensors = count;
    refusal(b.bytes());
    b.extra_tensors = 0;
    b.extra_values = count;
    refusal(b.bytes());
  }
}

TEST_F(Gguf, J2_SizesThatWrap) {
  const std::uint64_t size_max = ~0ull;
  EXPECT_THAT(refusal_of_dims({1ull << 20, 1ull << 42}, 0), HasSubstr("'w'"));
  EXPECT_THAT(refusal_of_dims({4, (1ull << 30) - 1, (1ull << 30) + 1}, 0), HasSubstr("'w'"));
  EXPECT_THAT(refusal_of_dims({size_max / 4}, 0), HasSubstr("'w'"));
  EXPECT_THAT(refusal_of_dims({5124095576030431008ull}, 2), HasSubstr("'w'"));
  EXPECT_THAT(refusal_of_dims({size_max}, 0), HasSubstr("'w'"));
  EXPECT_THAT(refusal_of_dims({1ull << 32, 1ull << 32, 1ull << 32, 0}, 0), HasSubstr("'w'"));
}

TEST_F(Gguf, J2_OffsetsThatWrapOrLeaveTheFile) {
  for (const std::uint64_t offset : {32ull, 1ull << 40, ~0ull - 31}) {
    EXPECT_THAT(refusal(GgufBuilder().tensor_at("w", {4}, 0, offset, std::string(16, 'x')).bytes()),
                AllOf(HasSubstr("'w'"), HasSubstr(str(offset))));
  }
  EXPECT_THAT(refusal(GgufBuilder().tensor_at("w", {1}, 0, 4, std::string(32, 'x')).bytes()),
              HasSubstr("multiple of the alignment"));
}

TEST_F(Gguf, RowsMustBeWholeBlocks) {
  EXPECT_THAT(refusal_of_dims({48, 2}, 2), AllOf(HasSubstr("'w'"), HasSubstr("multiple of 32")));
  EXPECT_THAT(refusal_of_dims({128}, 14), HasSubstr("multiple of 256"));
}

TEST_F(Gguf, J4_ZeroDimensionIsAnEmptyTensor) {
  const GgufFile file = open(GgufBuilder().tensor("w", {0, 3}, 0, "").tensor("v", {32, 0}, 2, "").bytes());
  EXPECT_EQ(file.find_tensor("w")->shape, (Shape{3, 0}));
  EXPECT_EQ(file.find_tensor("v")->shape, (Shape{0, 32}));
  EXPECT_TRUE(file.find_tensor("w")->bytes.empty());
  EXPECT_TRUE(file.find_tensor("w")->rows(0, 3).empty());
}

TEST_F(Gguf, J6_LastTensorUnpadded) {
  GgufBuilder b;
  b.tensor_f32("v", {1}, {1}).tensor_f32("w", {3}, {1, 2, 3});
  b.pad_last = false;
  EXPECT_EQ(b.bytes().size() % 32, 12u);
  std::vector<float> values(3);
  const GgufFile file = open(b.bytes());
  decode_gguf_blocks(GgufType::f32, file.find_tensor("w")->bytes, values);
  EXPECT_THAT(values, ElementsAre(1, 2, 3));
  open(b.bytes() + "trailing bytes");
  GgufBuilder no_data;
  no_data.tensor("e", {0}, 0, "");
  EXPECT_EQ(open(no_data.bytes()).tensors().size(), 1u);
}

TEST_F(Gguf, DuplicatesAreRefused) {
  EXPECT_THAT(refusal(GgufBuilder().u32("k", 1).u32("k", 2).bytes()), HasSubstr("duplicate key 'k'"));
  EXPECT_THAT(refusal(GgufBuilder().tensor_f32("w", {1}, {1}).tensor_f32("w", {1}, {1}).bytes()),
              AllOf(HasSubstr("'w'"), HasSubstr("duplicate")));
}

TEST_F(Gguf, Alignment) {
  for (const std::uint32_t alignment : {1u, 8u, 64u, 65536u}) {
    GgufBuilder b;
    b.alignment = alignment;
    b.u32("general.alignment", alignment).tensor_f32("v", {1}, {1}).tensor_f32("w", {1}, {2});
    const GgufFile file = open(b.bytes());
    EXPECT_EQ(file.alignment(), alignment);
    float value = 0;
    decode_gguf_blocks(GgufType::f32, file.find_tensor("w")->bytes, {&value, 1});
    EXPECT_EQ(value, 2.0f);
  }
  for (const std::uint32_t alignment : {0u, 24u, 131072u, 1u << 31}) {
    EXPECT_THAT(refusal(GgufBuilder().u32("general.alignment", alignment).bytes()),
                HasSubstr("power of two"));
  }
  EXPECT_THAT(refusal(GgufBuilder().scalar<std::uint64_t>("general.alignment", 10, 32).bytes()),
              HasSubstr("u32"));
}

TEST_F(Gguf, BooleansAreZeroOrOne) {
  EXPECT_THAT(refusal(GgufBuilder().scalar<std::uint8_t>("k", 7, 2).bytes()), HasSubstr("boolean is 2"));
  EXPECT_THAT(refusal(GgufBuilder().array<std::uint8_t>("k", 7, {0, 1, 9}).bytes()),
              HasSubstr("boolean is 9"));
}

}  // namespace
}  // namespace mixtape
