#include "mixtape/io/safetensors_writer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/safetensors_directory.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

namespace fs = std::filesystem;
using testing::contents_of;
using testing::TempDirectory;
constexpr auto kInvalid = ErrorCode::invalid_argument;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(SafetensorsWriter, OrdersByAlignmentThenNameAndPadsWithSpaces) {
  const TempDirectory directory;
  const std::vector<TensorSpec> specs = {{"c", FileDType::U8, {3}},
                                         {"b", FileDType::F32, {1}},
                                         {"a", FileDType::BF16, {1, 2}},
                                         {"a2", FileDType::F32, {}},
                                         {"empty", FileDType::F32, {0, 7}}};
  SafetensorsWriter writer(directory / "x.safetensors", specs, {{"format", "mlx"}});
  writer.write("c", bytes_of("ccc"));
  writer.write("empty", bytes_of(""));
  writer.write("a", bytes_of("aaaa"));
  writer.write("b", bytes_of("bbbb"));
  writer.write("a2", bytes_of("AAAA"));
  EXPECT_FALSE(fs::exists(directory / "x.safetensors"));
  writer.commit();

  const std::string text = contents_of(directory / "x.safetensors");
  const std::string header =
      R"({"__metadata__":{"format":"mlx"},"a2":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
      R"("empty":{"dtype":"F32","shape":[0,7],"data_offsets":[8,8]},)"
      R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[8,12]},"c":{"dtype":"U8","shape":[3],"data_offsets":[12,15]}})";
  const std::size_t padded = (header.size() + 7) / 8 * 8;
  EXPECT_EQ(static_cast<unsigned char>(text[0]) + 256u * static_cast<unsigned char>(text[1]), padded);
  EXPECT_EQ(text.substr(8), header + std::string(padded - header.size(), ' ') + "AAAAbbbbaaaaccc");
}

TEST(SafetensorsWriter, NamesNeedNoPlainText) {
  const TempDirectory directory;
  const std::string odd = "quote\" back\\ newline\n \xc3\xa9";
  const std::vector<TensorSpec> specs = {{odd, FileDType::U8, {1}}};
  SafetensorsWriter writer(directory / "x.safetensors", specs, {});
  writer.write(odd, bytes_of("x"));
  writer.commit();
  EXPECT_TRUE(SafetensorsFile::open(directory / "x.safetensors").has(odd));
}

TEST(SafetensorsWriter, WritesBuffersAsDeclared) {
  const TempDirectory directory;
  const Buffer values = Buffer::from<float>(Device::cpu(), {2}, std::vector<float>{1.5f, -2.0f});
  const std::vector<TensorSpec> specs = {{"w", FileDType::F32, {2}}};
  SafetensorsWriter writer(directory / "x.safetensors", specs, {});
  MIXTAPE_EXPECT_ERROR(writer.write("w", Device::cpu().alloc(DType::bf16, {2})), kInvalid,
                       "tensor 'w': got bf16[2], expected F32[2]");
  MIXTAPE_EXPECT_ERROR(writer.write("w", Device::cpu().alloc(DType::f32, {2, 1})), kInvalid, "got f32[2,1]");
  writer.write("w", values);
  writer.commit();
  const SafetensorsFile file = SafetensorsFile::open(directory / "x.safetensors");
  EXPECT_EQ(load("w", file.at("w"), DType::f32, Device::cpu()).to_vector<float>(), values.to_vector<float>());
}

TEST(SafetensorsWriter, RefusesMisuse) {
  const TempDirectory directory;
  const fs::path path = directory / "x.safetensors";
  const std::vector<TensorSpec> twice = {{"a", FileDType::U8, {1}}, {"a", FileDType::F32, {1}}};
  MIXTAPE_EXPECT_ERROR(SafetensorsWriter(path, twice, {}), kInvalid, "tensor 'a' is declared twice");
  const std::vector<TensorSpec> reserved = {{"__metadata__", FileDType::U8, {1}}};
  MIXTAPE_EXPECT_ERROR(SafetensorsWriter(path, reserved, {}), kInvalid, "called __metadata__");
  const std::vector<TensorSpec> broken = {{"\xff", FileDType::U8, {1}}};
  MIXTAPE_EXPECT_ERROR(SafetensorsWriter(path, broken, {}), kInvalid, "not valid UTF-8");
  const std::vector<TensorSpec> huge = {{"a", FileDType::F64, {1ll << 62}}};
  MIXTAPE_EXPECT_ERROR(SafetensorsWriter(path, huge, {}), kInvalid, "too many bytes");

  const std::vector<TensorSpec> specs = {{"a", FileDType::F32, {2}}};
  SafetensorsWriter writer(path, specs, {});
  MIXTAPE_EXPECT_ERROR(writer.write("b", bytes_of("12345678")), kInvalid, "tensor 'b' was not declared");
  MIXTAPE_EXPECT_ERROR(writer.write("a", bytes_of("1234")), kInvalid, "got 4 bytes, expected 8 for F32[2]");
  MIXTAPE_EXPECT_ERROR(writer.commit(), kInvalid, "tensor 'a' was declared but never written");
  writer.write("a", bytes_of("12345678"));
  MIXTAPE_EXPECT_ERROR(writer.write("a", bytes_of("12345678")), kInvalid, "tensor 'a' is written twice");
}

TEST(SafetensorsWriter, I6_HeaderAboveTheLimit) {
  const TempDirectory directory;
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 11; ++i) {
    specs.push_back({std::to_string(i) + std::string(10'000'000, 'n'), FileDType::U8, {1}});
  }
  MIXTAPE_EXPECT_ERROR(SafetensorsWriter(directory / "x.safetensors", specs, {}), kInvalid,
                       "expected at most 100000000");
  EXPECT_TRUE(fs::is_empty(directory.path()));
}

std::vector<TensorSpec> three_tensors() {
  return {{"z", FileDType::F32, {2}}, {"m", FileDType::F32, {2}}, {"a", FileDType::U8, {4}}};
}

void fill_three(SafetensorsDirectoryWriter& writer) {
  writer.write("a", bytes_of("aaaa"));
  writer.write("m", bytes_of("mmmmmmmm"));
  writer.write("z", bytes_of("zzzzzzzz"));
  writer.commit();
}

TEST(SafetensorsDirectoryWriter, OneFileWithIndex) {
  const TempDirectory directory;
  SafetensorsDirectoryWriter writer(directory.path(), three_tensors());
  fill_three(writer);
  const auto index = nlohmann::json::parse(contents_of(directory / "model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 20);
  EXPECT_EQ(index["metadata"]["total_parameters"], 8);
  EXPECT_EQ(index["weight_map"]["z"], "model.safetensors");
  const SafetensorsDirectory read(directory.path());
  EXPECT_EQ(read.names(), (std::vector<std::string>{"a", "m", "z"}));
  EXPECT_EQ(read.metadata().at("format"), "mlx");
}

TEST(SafetensorsDirectoryWriter, ShardsInTheOrderGiven) {
  const TempDirectory directory;
  ShardOptions options;
  options.max_shard_bytes = 16;
  options.total_parameters = 32;
  SafetensorsDirectoryWriter writer(directory.path(), three_tensors(), options);
  fill_three(writer);
  const auto index = nlohmann::json::parse(contents_of(directory / "model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_parameters"], 32);
  EXPECT_EQ(index["weight_map"]["z"], "model-00001-of-00002.safetensors");
  EXPECT_EQ(index["weight_map"]["m"], "model-00001-of-00002.safetensors");
  EXPECT_EQ(index["weight_map"]["a"], "model-00002-of-00002.safetensors");
  const SafetensorsDirectory read(directory.path());
  EXPECT_EQ(load("a", read.at("a"), DType::u8, Device::cpu()).to_vector<std::uint8_t>()[3], 'a');
}

TEST(SafetensorsDirectoryWriter, ATensorAboveTheLimitGetsItsOwnFile) {
  const TempDirectory directory;
  ShardOptions options;
  options.max_shard_bytes = 5;
  SafetensorsDirectoryWriter writer(directory.path(), three_tensors(), options);
  fill_three(writer);
  EXPECT_EQ(SafetensorsDirectory(directory.path()).at("m").bytes.size(), 8u);
  EXPECT_TRUE(fs::exists(directory / "model-00003-of-00003.safetensors"));
}

TEST(SafetensorsDirectoryWriter, RefusesMisuse) {
  const TempDirectory directory;
  std::vector<TensorSpec> twice = three_tensors();
  twice.push_back({"z", FileDType::U8, {1}});
  MIXTAPE_EXPECT_ERROR(SafetensorsDirectoryWriter(directory.path(), twice), kInvalid,
                       "tensor 'z' is declared twice");
  SafetensorsDirectoryWriter writer(directory.path(), three_tensors());
  MIXTAPE_EXPECT_ERROR(writer.write("q", bytes_of("")), kInvalid, "tensor 'q' was not declared");
  MIXTAPE_EXPECT_ERROR(writer.commit(), kInvalid, "never written");
  EXPECT_FALSE(fs::exists(directory / "model.safetensors"));
}

}  // namespace
}  // namespace mixtape
