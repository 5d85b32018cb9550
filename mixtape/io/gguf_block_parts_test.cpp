#include "mixtape/io/gguf_block_parts.h"

#include <gmock/gmock.h>

#include <vector>

#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

GgufBlock packed_and_back(GgufType type, const GgufBlock& block) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(gguf_type_info(type).block_bytes), std::byte{0xff});
  pack_gguf_block(type, block, bytes);
  return unpack_gguf_block(type, bytes);
}

TEST(GgufBlockParts, SignsAreThoseOfTheNumbers) {
  GgufBlock block;
  block.scale = f16(0.5f);
  block.bias = f16(-0.25f);
  block.sub_scales.fill(-128);
  block.codes.fill(63);
  EXPECT_EQ(packed_and_back(GgufType::q6_k, block).sub_scales, block.sub_scales);
  block.sub_scales.fill(-32);
  block.codes.fill(7);
  EXPECT_EQ(packed_and_back(GgufType::q3_k, block).sub_scales, block.sub_scales);
  block.sub_scales.fill(63);
  block.sub_biases.fill(63);
  const GgufBlock back = packed_and_back(GgufType::q4_k, block);
  EXPECT_EQ(static_cast<float>(back.bias), -0.25f);
  EXPECT_EQ(back.sub_biases[7], 63);
  EXPECT_EQ(back.sub_biases[8], 0);  // there are eight
}

TEST(GgufBlockParts, OtherTypesAndSizesAreRefused) {
  const auto code = ErrorCode::invalid_argument;
  std::vector<std::byte> bytes(4);
  MIXTAPE_EXPECT_ERROR(unpack_gguf_block(GgufType::f32, bytes), code,
                       "a block of F32, expected a quantized type");
  MIXTAPE_EXPECT_ERROR(unpack_gguf_block(GgufType::q4_k, bytes), code,
                       "a block of Q4_K in 4 bytes, expected 144");
  MIXTAPE_EXPECT_ERROR(pack_gguf_block(GgufType::q8_0, {}, bytes), code,
                       "a block of Q8_0 in 4 bytes, expected 34");
}

}  // namespace
}  // namespace mixtape
