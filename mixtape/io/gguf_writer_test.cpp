#include "mixtape/io/gguf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "mixtape/core/error.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/gguf_builder.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

namespace fs = std::filesystem;
using testing::contents_of;
using ::testing::ElementsAre;
using testing::GgufBuilder;
using ::testing::HasSubstr;
using testing::TempDirectory;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

// Reads the file and writes it again, tensors in reverse.
std::string rewritten(const fs::path& path, const TempDirectory& directory) {
  const GgufFile file(path);
  std::vector<GgufTensorSpec> specs;
  for (const GgufTensor& t : file.tensors()) specs.push_back({t.name, t.type, t.shape});
  AtomicFile out(directory / "again.gguf");
  const GgufLayout layout(gguf_metadata_of(file), specs);
  GgufWriter writer(out, layout);
  std::for_each(file.tensors().rbegin(), file.tensors().rend(),
                [&](const GgufTensor& t) { writer.write(t.name, t.bytes); });
  writer.commit();
  EXPECT_EQ(fs::file_size(directory / "again.gguf"), layout.file_bytes());
  return contents_of(directory / "again.gguf");
}

TEST(GgufWriter, WritesEveryTypeOfValue) {
  GgufMetadata metadata;
  metadata.add("u8", std::uint8_t{200});
  metadata.add("i8", std::int8_t{-3});
  metadata.add("u16", std::uint16_t{60000});
  metadata.add("i16", std::int16_t{-300});
  metadata.add("u32", std::uint32_t{4000000000u});
  metadata.add("i32", std::int32_t{-70000});
  metadata.add("f32", 0.5f);
  metadata.add("yes", true);
  metadata.add("text", "words");
  metadata.add("u64", std::uint64_t{1} << 40);
  metadata.add("i64", -(std::int64_t{1} << 40));
  metadata.add("f64", 0.1);
  metadata.add("texts", gguf_array(std::vector<std::string>{"a", "", "bc"}));
  metadata.add("ints", gguf_array(std::vector<std::int32_t>{1, -2}));
  metadata.add("nested", gguf_array(std::vector{gguf_array(std::vector<std::string>{"x"}),
                                                gguf_array(std::vector<float>{1.5f, 2.0f})}));

  GgufBuilder b;
  b.pad_last = false;
  b.scalar<std::uint8_t>("u8", 0, 200).scalar<std::int8_t>("i8", 1, -3);
  b.scalar<std::uint16_t>("u16", 2, 60000).scalar<std::int16_t>("i16", 3, -300);
  b.u32("u32", 4000000000u).scalar<std::int32_t>("i32", 5, -70000).f32("f32", 0.5f);
  b.boolean("yes", true).string("text", "words").scalar<std::uint64_t>("u64", 10, 1ull << 40);
  b.scalar<std::int64_t>("i64", 11, -(1ll << 40)).scalar<double>("f64", 12, 0.1);
  b.strings("texts", {"a", "", "bc"}).array<std::int32_t>("ints", 5, {1, -2});
  std::string nested = GgufBuilder::array_head(9, 2) + GgufBuilder::array_head(8, 1);
  GgufBuilder::put_string(nested, "x");
  nested += GgufBuilder::array_head(6, 2);
  GgufBuilder::put(nested, 1.5f);
  GgufBuilder::put(nested, 2.0f);
  b.raw("nested", 9, nested);
  EXPECT_EQ(GgufLayout(metadata, {}).head(), b.bytes());
  EXPECT_THAT(refusal([&] { metadata.add("u8", 1u); }), HasSubstr("key 'u8' is added twice"));
  EXPECT_THAT(refusal([&] { metadata.add("", 1u); }), HasSubstr("0 bytes"));
  EXPECT_THAT(refusal([&] { metadata.add(std::string(65536, 'k'), 1u); }), HasSubstr("65536 bytes"));
  EXPECT_THAT(refusal([] { gguf_array(std::vector{gguf_value(1u)}); }), HasSubstr("is a u32"));
}

TEST(GgufWriter, AlignsTensorsAndAppearsWhole) {
  const TempDirectory directory;
  for (const std::uint32_t alignment : {8u, 32u, 64u}) {
    GgufMetadata metadata;
    metadata.add("general.alignment", alignment);
    AtomicFile out(directory / "x.gguf");
    const std::vector<GgufTensorSpec> specs = {
        {"b", GgufType::f16, {3}}, {"none", GgufType::f32, {0, 7}}, {"a", GgufType::q4_1, {2, 32}}};
    const GgufLayout layout(metadata, specs);
    const std::string codes(40, 'q');
    GgufWriter writer(out, layout);
    writer.write("a", bytes_of(codes));
    writer.write("none", {});
    writer.write("b", bytes_of("xxxxxx"));
    fs::remove(directory / "x.gguf");
    writer.commit();

    GgufBuilder b;
    b.alignment = alignment;
    b.u32("general.alignment", alignment);
    b.tensor("b", {3}, 1, "xxxxxx").tensor("none", {7, 0}, 0, "").tensor("a", {32, 2}, 3, codes);
    EXPECT_EQ(contents_of(directory / "x.gguf"), b.bytes());
    EXPECT_EQ(layout.file_bytes(), b.bytes().size());
  }
}

TEST(GgufWriter, WritesAFileThatItReadUnchanged) {
  const TempDirectory directory;
  for (const char* name : {"gguf_blocks.gguf", "vocab/gpt-2.gguf", "vocab/llama-spm.gguf"}) {
    const fs::path path = fs::path("tests/data") / name;
    EXPECT_EQ(rewritten(path, directory), contents_of(path)) << name;
  }
}

TEST(GgufWriter, NothingIsLeftWithoutCommit) {
  const TempDirectory directory;
  {
    AtomicFile out(directory / "x.gguf");
    GgufWriter writer(out, GgufLayout({}, {{"a", GgufType::f32, {1}}, {"b", GgufType::f32, {1}}}));
    writer.write("a", bytes_of("aaaa"));
    EXPECT_THAT(refusal([&] { writer.write("a", bytes_of("aaaa")); }), HasSubstr("'a' is written twice"));
    EXPECT_THAT(refusal([&] { writer.write("c", bytes_of("cccc")); }), HasSubstr("'c' was not declared"));
    EXPECT_THAT(refusal([&] { writer.write("b", bytes_of("bb")); }),
                HasSubstr("'b': got 2 bytes, expected 4 for F32[1]"));
    EXPECT_THAT(refusal([&] { writer.commit(); }), HasSubstr("'b' was declared but never written"));
  }
  EXPECT_TRUE(fs::is_empty(directory.path()));
}

std::string layout_refusal(const std::vector<GgufTensorSpec>& specs) {
  return refusal([&] { GgufLayout({}, specs); });
}

TEST(GgufWriter, RefusesWhatNoFileCanHold) {
  const std::string longest(63, 'n');
  EXPECT_NO_THROW(GgufLayout({}, {{longest, GgufType::f32, {1}}}));
  EXPECT_THAT(layout_refusal({{longest + "n", GgufType::f32, {1}}}),
              HasSubstr("its name has 64 bytes, expected 1 to 63"));
  EXPECT_THAT(layout_refusal({{"", GgufType::f32, {1}}}), HasSubstr("its name has 0 bytes"));
  EXPECT_THAT(layout_refusal({{"w", GgufType::f32, {1}}, {"w", GgufType::f16, {2}}}),
              HasSubstr("'w' is declared twice"));
  EXPECT_THAT(layout_refusal({{"w", GgufType::f32, {1, 1, 1, 1, 1}}}), HasSubstr("has 5 dimensions"));
  EXPECT_THAT(layout_refusal({{"w", GgufType::q4_k, {2, 128}}}),
              HasSubstr("'w': rows of 128 values as Q4_K, expected a multiple of 256"));
  EXPECT_THAT(layout_refusal({{"w", GgufType::f32, {std::int64_t{1} << 62}}}), HasSubstr("too many bytes"));
  const GgufTensorSpec half{"w", GgufType::f32, {std::int64_t{1} << 60}};
  EXPECT_THAT(layout_refusal({half, {"v", GgufType::f32, {std::int64_t{1} << 60}}}),
              HasSubstr("'v': the file would have too many bytes"));
}

TEST(GgufWriter, RefusesAnOddAlignment) {
  for (const std::uint32_t alignment : {0u, 24u, 1u << 17}) {
    GgufMetadata metadata;
    metadata.add("general.alignment", alignment);
    EXPECT_THAT(refusal([&] { GgufLayout(metadata, {}); }), HasSubstr("expected a power of two"));
  }
  GgufMetadata metadata;
  metadata.add("general.alignment", std::uint64_t{32});
  EXPECT_THAT(refusal([&] { GgufLayout(metadata, {}); }), HasSubstr("is a u64, expected u32"));
}

}  // namespace
}  // namespace mixtape
