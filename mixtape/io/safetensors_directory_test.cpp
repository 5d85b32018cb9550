#include "mixtape/io/safetensors_directory.h"

#include <gtest/gtest.h>

#include <cstring>

#include "mixtape/core/error.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

namespace fs = std::filesystem;
using testing::TempDirectory;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kFirst = "model-00001-of-00002.safetensors";
constexpr const char* kSecond = "model-00002-of-00002.safetensors";

// One u8 tensor.
std::string file_with(const std::string& name) {
  const std::string header = "{\"" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  const std::uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + "x";
}

std::string index_of(const std::string& map) { return "{\"metadata\":{},\"weight_map\":" + map + "}"; }

std::string two_shards() { return index_of(str("{\"a\":\"", kFirst, "\",\"b\":\"", kSecond, "\"}")); }

TEST(SafetensorsDirectory, SingleFileOrDirectory) {
  const TempDirectory directory;
  directory.write("model.safetensors", file_with("a"));
  EXPECT_TRUE(SafetensorsDirectory(directory.path()).has("a"));
  EXPECT_TRUE(SafetensorsDirectory(directory / "model.safetensors").has("a"));
}

TEST(SafetensorsDirectory, ShardsFollowTheIndex) {
  const TempDirectory directory;
  directory.write(kIndex, two_shards());
  directory.write(kFirst, file_with("a"));
  directory.write(kSecond, file_with("b"));
  const SafetensorsDirectory read(directory.path());
  EXPECT_EQ(read.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(read.at("b").bytes.size(), 1u);
  MIXTAPE_EXPECT_ERROR(read.at("c"), ErrorCode::format, directory.path().string() + ": has no tensor 'c'");
}

TEST(SafetensorsDirectory, I9_ShardAbsent) {
  const TempDirectory directory;
  directory.write(kIndex, two_shards());
  MIXTAPE_EXPECT_ERROR(SafetensorsDirectory(directory.path()), ErrorCode::format,
                       str("the index names 2 shards, absent: ", kFirst, ", ", kSecond));
  // Found before the other shard is read: what it holds doesn't matter.
  directory.write(kFirst, "not a safetensors file");
  MIXTAPE_EXPECT_ERROR(SafetensorsDirectory(directory.path()), ErrorCode::format,
                       str("the index names 2 shards, absent: ", kSecond));
}

TEST(SafetensorsDirectory, I9_StaleIndex_ShardLacksTensors) {
  const TempDirectory directory;
  directory.write(kIndex,
                  index_of(str("{\"a\":\"", kFirst, "\",\"b\":\"", kFirst, "\",\"c\":\"", kFirst, "\"}")));
  directory.write(kFirst, file_with("b"));
  MIXTAPE_EXPECT_ERROR(SafetensorsDirectory(directory.path()), ErrorCode::format,
                       str("lack these tensors: 'a' in ", kFirst, ", 'c' in ", kFirst));
}

TEST(SafetensorsDirectory, I9_IndexLacksTheName) {
  const TempDirectory directory;
  directory.write(kIndex, index_of(str("{\"a\":\"", kFirst, "\"}")));
  const std::string two = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                          R"("b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})";
  const std::uint64_t length = two.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  directory.write(kFirst, text + two + "xy");
  const SafetensorsDirectory read(directory.path());
  EXPECT_FALSE(read.has("b"));
  MIXTAPE_EXPECT_ERROR(read.at("b"), ErrorCode::format,
                       str("the index lacks the name 'b' though ", kFirst, " holds it"));
}

TEST(SafetensorsDirectory, I9_DirectoryCalledLikeAFile) {
  const TempDirectory directory;
  fs::create_directory(directory / "x.safetensors");
  MIXTAPE_EXPECT_ERROR(SafetensorsDirectory(directory / "x.safetensors"), ErrorCode::invalid_argument,
                       "x.safetensors: found a directory or special file, expected a regular file");
  MIXTAPE_EXPECT_ERROR(SafetensorsDirectory(directory.path() / "x.safetensors/"), ErrorCode::invalid_argument,
                       "found a directory");
  fs::create_directory(directory / "model.safetensors");
  MIXTAPE_EXPECT_ERROR(SafetensorsDirectory(directory.path()), ErrorCode::invalid_argument,
                       "found a directory");
  fs::create_directory(directory / kFirst);
  directory.write(kIndex, index_of(str("{\"a\":\"", kFirst, "\"}")));
  MIXTAPE_EXPECT_ERROR(SafetensorsDirectory(directory.path()), ErrorCode::invalid_argument,
                       "found a directory");
}

TEST(SafetensorsDirectory, RefusesABadIndex) {
  const TempDirectory directory;
  const auto expect = [&](const std::string& index, const std::string& message) {
    directory.write(kIndex, index);
    MIXTAPE_EXPECT_ERROR(SafetensorsDirectory(directory.path()), ErrorCode::format, message);
  };
  expect("[]", "has no weight_map");
  expect("{}", "has no weight_map");
  expect("{\"weight_map\":[]}", "has no weight_map");
  expect(index_of("{}"), "weight_map is empty");
  expect(index_of("{\"a\":1}"), "shard of 'a' is 1, expected a string");
  expect(index_of("{\"a\":\"../x.safetensors\"}"), "shard is called '../x.safetensors'");
  expect(index_of("{\"a\":\"/x.safetensors\"}"), "expected a plain *.safetensors name");
  expect(index_of("{\"a\":\"x.bin\"}"), "expected a plain *.safetensors name");
  expect(index_of("{\"a\":\"x.safetensors\",\"a\":\"y.safetensors\"}"), "duplicate key \"a\"");
  expect("{", "invalid JSON");
}

TEST(SafetensorsDirectory, RefusesWhereThereIsNothing) {
  const TempDirectory directory;
  MIXTAPE_EXPECT_ERROR(SafetensorsDirectory(directory.path()), ErrorCode::format,
                       "found neither model.safetensors nor model.safetensors.index.json");
  MIXTAPE_EXPECT_ERROR(SafetensorsDirectory(directory / "absent"), ErrorCode::invalid_argument,
                       "No such file or directory");
}

}  // namespace
}  // namespace mixtape
