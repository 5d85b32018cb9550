#include "mixtape/io/gguf_blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "mixtape/core/error.h"
#include "mixtape/io/gguf.h"

namespace mixtape {
namespace {

std::vector<float> decode(const GgufTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.shape.numel()));
  decode_gguf_blocks(tensor.type, tensor.bytes, values);
  return values;
}

// tests/data/make_gguf_blocks.py wrote the blocks and, with another decoder, their values.
TEST(GgufBlocks, EveryTypeBitForBit) {
  const GgufFile file("tests/data/gguf_blocks.gguf");
  int types = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    const GgufTensor* expected = file.find_tensor(tensor.name + ".expected");
    if (expected == nullptr) continue;
    ++types;
    ASSERT_EQ(tensor.shape, expected->shape) << tensor.name;
    const std::vector<float> found = decode(tensor), wanted = decode(*expected);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(found[i]), std::bit_cast<std::uint32_t>(wanted[i]))
          << tensor.name << " element " << i << ": found " << found[i] << ", wanted " << wanted[i];
    }
  }
  EXPECT_EQ(types, 14);
}

TEST(GgufBlocks, RowsAreThoseOfTheLastDimension) {
  const GgufFile file("tests/data/gguf_blocks.gguf");
  const GgufTensor& tensor = *file.find_tensor("q6_k");
  ASSERT_EQ(tensor.shape, (Shape{3, 512}));
  const std::vector<float> all = decode(tensor);
  std::vector<float> row(512);
  decode_gguf_blocks(tensor.type, tensor.rows(1, 2), row);
  EXPECT_EQ(row, std::vector<float>(all.begin() + 512, all.begin() + 1024));
  EXPECT_THROW(tensor.rows(2, 4), Error);
}

TEST(GgufBlocks, WrongSizesAreRefused) {
  std::vector<std::byte> blocks(18);
  std::vector<float> values(32);
  EXPECT_NO_THROW(decode_gguf_blocks(GgufType::q4_0, blocks, values));
  EXPECT_THROW(decode_gguf_blocks(GgufType::q4_1, blocks, values), Error);
  values.resize(31);
  EXPECT_THROW(decode_gguf_blocks(GgufType::q4_0, blocks, values), Error);
}

TEST(GgufBlocks, KnowsTypesThatItCannotDecode) {
  EXPECT_STREQ(gguf_type_name(14), "Q6_K");
  EXPECT_STREQ(gguf_type_name(23), "IQ4_XS");
  EXPECT_EQ(find_gguf_type(23), nullptr);
  EXPECT_STREQ(gguf_type_name(4), "unknown");
}

}  // namespace
}  // namespace mixtape
