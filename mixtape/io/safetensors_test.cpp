#include "mixtape/io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>

#include "mixtape/core/error.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

using testing::TempDirectory;

std::string file_text(const std::string& header, std::size_t data_bytes) {
  std::uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + std::string(data_bytes, 'd');
}

SafetensorsFile parse(const std::string& text) {
  return SafetensorsFile::from_bytes(std::as_bytes(std::span(text)), "x.safetensors");
}

void expect_refused(const std::string& header, std::size_t data_bytes, const std::string& message) {
  SCOPED_TRACE(header);
  const std::string text = file_text(header, data_bytes);
  MIXTAPE_EXPECT_ERROR(parse(text), ErrorCode::format, message);
}

// One tensor called "a" with the given fields.
void expect_entry_refused(const std::string& fields, std::size_t data_bytes, const std::string& message) {
  const std::string header = "{\"a\":{" + fields + "}}";
  expect_refused(header, data_bytes, "x.safetensors: tensor 'a': ");
  expect_refused(header, data_bytes, message);
}

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const std::string text =
      file_text(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]},)"
                R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}   )",
                11);
  const SafetensorsFile file = parse(text);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.at("a").shape, (Shape{1, 2}));
  EXPECT_EQ(file.at("a").dtype, FileDType::F32);
  EXPECT_EQ(file.at("b").bytes.size(), 3u);
  EXPECT_FALSE(file.has("c"));
  MIXTAPE_EXPECT_ERROR(file.at("c"), ErrorCode::format, "x.safetensors: has no tensor 'c'");
}

TEST(Safetensors, ViewsOutliveTheirFileObjectsCopies) {
  const TempDirectory directory;
  const auto path = directory.write("m.safetensors",
                                    file_text(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2));
  const SafetensorsFile copy = SafetensorsFile(SafetensorsFile::open(path));
  EXPECT_EQ(copy.at("a").bytes[1], std::byte{'d'});
  EXPECT_EQ(copy.where(), path.string());
}

TEST(Safetensors, RefusesABadLength) {
  MIXTAPE_EXPECT_ERROR(parse(""), ErrorCode::format, "found 0 bytes, expected at least 8");
  MIXTAPE_EXPECT_ERROR(parse("1234567"), ErrorCode::format, "found 7 bytes, expected at least 8");
  std::string text = file_text("{}", 0);
  text[0] = 3;
  MIXTAPE_EXPECT_ERROR(parse(text), ErrorCode::format, "header length is 3, the file has only 2 bytes left");
}

TEST(Safetensors, RefusesAHeaderThatIsNotAnObject) {
  expect_refused("", 0, "doesn't begin with '{'");
  expect_refused(" {}", 0, "doesn't begin with '{'");
  expect_refused("[]", 0, "doesn't begin with '{'");
  expect_refused("{\"a\":", 0, "invalid JSON");
  expect_refused("{} {}", 0, "invalid JSON");
  expect_refused("{\"a\xff\":1}", 0, "invalid JSON or UTF-8");
  expect_refused("{\"a\":3}", 0, "tensor 'a': found number, expected an object");
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100'000; ++i) deep += '[';
  expect_refused(deep, 0, "nests deeper than 64");
}

TEST(Safetensors, I1_DuplicateKey) {
  const std::string entry = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  expect_refused("{\"key00\":" + entry + ",\"key00\":" + entry + "}", 1, "duplicate key \"key00\"");
  expect_refused(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
                 "duplicate key \"dtype\"");
  // The same name spelled with an escape is the same key.
  expect_refused("{\"a\":" + entry + ",\"\\u0061\":" + entry + "}", 1, "duplicate key \"a\"");
}

TEST(Safetensors, I2_OffsetsMustFitTheShape) {
  const std::string big = R"("dtype":"F32","shape":[1000,1000],"data_offsets":)";
  expect_entry_refused(big + "[0,4]", 4, "data_offsets [0,4] cover 4 bytes, F32[1000,1000] has 4000000");
  expect_entry_refused(big + "[0,4000000]", 4, "data_offsets [0,4000000] end after the data's 4 bytes");
  const std::string small = R"("dtype":"F32","shape":[1],"data_offsets":)";
  expect_entry_refused(small + "[4,0]", 4, "data_offsets [4,0] are reversed");
  for (const char* offsets :
       {"[-4,0]", "[0]", "[0,4,8]", "[0,4.0]", "[0,\"4\"]", "{}", "null", "4", "[0,1e1]"}) {
    expect_entry_refused(small + offsets, 4, "data_offsets is ");
  }
  expect_entry_refused(small + "[18446744073709551612,18446744073709551616]", 4, "data_offsets is ");
  expect_entry_refused(small + "[18446744073709551608,18446744073709551612]", 4,
                       "end after the data's 4 bytes");
}

TEST(Safetensors, I2_ShapeOverflow) {
  const auto shape = [](const std::string& dims) {
    return "\"dtype\":\"F32\",\"shape\":" + dims + ",\"data_offsets\":[0,0]";
  };
  expect_entry_refused(shape("[4294967296,4294967296]"), 0, "shape [4294967296,4294967296] overflows");
  expect_entry_refused(shape("[0,4294967296,4294967296]"), 0, "shape [0,4294967296,4294967296] overflows");
  expect_entry_refused(shape("[9223372036854775807]"), 0, "overflows");
  expect_entry_refused(shape("[9223372036854775808]"), 0, "expected whole numbers from 0 to 2^63-1");
  for (const char* dims : {"[-1]", "[1.5]", "[\"1\"]", "[null]"}) {
    expect_entry_refused(shape(dims), 0, "expected whole numbers");
  }
  expect_entry_refused(shape("4"), 0, "shape is 4, expected a list");
}

TEST(Safetensors, RefusesMissingFields) {
  expect_entry_refused(R"("shape":[1],"data_offsets":[0,1])", 1, "has no dtype");
  expect_entry_refused(R"("dtype":"U8","data_offsets":[0,1])", 1, "has no shape");
  expect_entry_refused(R"("dtype":"U8","shape":[1])", 1, "has no data_offsets");
}

std::string two_tensors(int a_begin, int a_end, int b_begin, int b_end) {
  return str(R"({"a":{"dtype":"U8","shape":[)", a_end - a_begin, R"(],"data_offsets":[)", a_begin, ",", a_end,
             R"(]},"b":{"dtype":"U8","shape":[)", b_end - b_begin, R"(],"data_offsets":[)", b_begin, ",",
             b_end, "]}}");
}

TEST(Safetensors, DataMustBeCoveredExactly) {
  EXPECT_EQ(parse(file_text(two_tensors(2, 4, 0, 2), 4)).tensors().size(), 2u);
  expect_refused(two_tensors(0, 3, 2, 4), 4, "tensor 'b': overlaps tensor 'a'");
  expect_refused(two_tensors(0, 4, 0, 4), 4, "tensor 'b': overlaps tensor 'a'");
  expect_refused(two_tensors(0, 4, 2, 2), 4, "tensor 'b': overlaps tensor 'a'");
  expect_refused(two_tensors(0, 2, 3, 4), 4,
                 "tensor 'b': starts at byte 3 of the data, leaving a hole from byte 2");
  expect_refused(two_tensors(1, 2, 2, 4), 4,
                 "tensor 'a': starts at byte 1 of the data, leaving a hole from byte 0");
  expect_refused(two_tensors(0, 2, 2, 4), 7, "3 bytes of data after the last tensor 'b' belong to no tensor");
  expect_refused("{}", 1, "1 bytes of data after the header belong to no tensor");
}

TEST(Safetensors, I4_NulPadding) {
  const std::string entry = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  expect_refused(entry + std::string(3, '\0'), 1,
                 str("byte ", 8 + entry.size(), " of the file is NUL, expected JSON padded with spaces"));
  expect_refused(std::string("{\"a\0b\":1}", 9), 1, "byte 11 of the file is NUL");
}

TEST(Safetensors, I6_HeaderAboveTheLimit) {
  std::string text = file_text("{}", 0);
  const std::uint64_t length = 132'095'296;
  std::memcpy(text.data(), &length, 8);
  MIXTAPE_EXPECT_ERROR(parse(text), ErrorCode::format,
                       "header length is 132095296, expected at most 100000000");
}

TEST(Safetensors, I7_EmptyTensorsAndScalars) {
  const std::string text = file_text(
      R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"z":{"dtype":"F32","shape":[3,0],"data_offsets":[4,4]},)"
      R"("y":{"dtype":"BF16","shape":[0],"data_offsets":[0,0]}})",
      4);
  const TempDirectory directory;
  for (const SafetensorsFile& file :
       {parse(text), SafetensorsFile::open(directory.write("m.safetensors", text))}) {
    EXPECT_EQ(load("s", file.at("s"), DType::f32, Device::cpu()).shape(), Shape{});
    EXPECT_EQ(load("z", file.at("z"), DType::bf16, Device::cpu()).shape(), (Shape{3, 0}));
    EXPECT_EQ(file.at("y").bytes.size(), 0u);
  }
  EXPECT_TRUE(parse(file_text("{}", 0)).tensors().empty());
  EXPECT_TRUE(parse(file_text(R"({"__metadata__":{}})", 0)).metadata().empty());
}

TEST(Safetensors, I8_UnknownDType) {
  expect_entry_refused(R"("dtype":"F4","shape":[1],"data_offsets":[0,1])", 1, "unknown dtype \"F4\"");
  expect_entry_refused(R"("dtype":"f32","shape":[1],"data_offsets":[0,4])", 4, "unknown dtype \"f32\"");
  expect_entry_refused(R"("dtype":3,"shape":[1],"data_offsets":[0,1])", 1, "dtype is 3, expected a string");
}

TEST(Safetensors, EveryKnownDTypeHasItsSize) {
  const std::pair<const char*, std::size_t> kSizes[] = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},  {"I32", 4},     {"I16", 2},    {"I8", 1},
      {"U64", 8}, {"U32", 4}, {"U16", 2}, {"U8", 1},   {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (const auto& [spelling, size] : kSizes) {
    const std::string text =
        file_text(str(R"({"a":{"dtype":")", spelling, R"(","shape":[3],"data_offsets":[0,)", 3 * size, "]}}"),
                  3 * size);
    EXPECT_EQ(name(parse(text).at("a").dtype), std::string(spelling));
  }
}

TEST(Safetensors, MetadataMustMapStringsToStrings) {
  expect_refused(R"({"__metadata__":{"a":1}})", 0, "__metadata__: value of 'a' is 1, expected a string");
  expect_refused(R"({"__metadata__":[]})", 0, "__metadata__: found array, expected an object");
}

TEST(Safetensors, ReadsRealFiles) {
  const SafetensorsFile file = SafetensorsFile::open("tests/data/parity/llama/model.safetensors");
  EXPECT_EQ(file.tensors().size(), 21u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.at("model.layers.1.mlp.down_proj.weight").shape, (Shape{64, 160}));
  for (const auto& [name, view] : file.tensors()) check_finite(name, view);
}

}  // namespace
}  // namespace mixtape
