#include <gmock/gmock.h>

#include <cmath>

#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/quant/block_bytes.h"
#include "mixtape/quant/weight_codec.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::HostTensor;

constexpr BlockType kTypes[] = {BlockType::q4_0, BlockType::q4_1, BlockType::q5_0, BlockType::q5_1,
                                BlockType::q8_0, BlockType::q2_k, BlockType::q3_k, BlockType::q4_k,
                                BlockType::q5_k, BlockType::q6_k};
const Shape kShape{3, 512};

std::size_t bytes_of(BlockType type, const Shape& shape) {
  return static_cast<std::size_t>(codec_of(WeightFormat(type)).stored_bytes(shape, type, DType::f32));
}

// Any bits, but for exponents of f16 numbers that would make them infinite or NaN.
std::vector<std::byte> random_blocks(BlockType type) {
  const GgufTypeInfo& info = gguf_type_info(gguf_type(type));
  const std::size_t size = static_cast<std::size_t>(info.block_bytes);
  const HostTensor random =
      testing::random_indices({static_cast<std::int64_t>(bytes_of(type, kShape))}, 7, 256);
  std::vector<std::byte> bytes;
  for (const double v : random.values) bytes.push_back(static_cast<std::byte>(static_cast<int>(v)));
  for (std::size_t b = 0; b < bytes.size(); b += size) {
    const std::size_t at = type == BlockType::q2_k   ? 80
                           : type == BlockType::q3_k ? 108
                           : type == BlockType::q6_k ? 208
                                                     : 0;
    for (std::size_t i = at; i < std::min(at + 4, size); ++i)
      bytes[b + i] &= i % 2 == 1 ? std::byte{0xbf} : std::byte{0xff};
  }
  return bytes;
}

std::vector<float> dequantized(const QuantizedWeight& q) {
  CommandEncoder encoder(q.codes.device());
  const Buffer w = q.codes.device().alloc(DType::f32, dequantized_shape("test", q));
  dequantize_affine_forward(encoder, q, w);
  encoder.commit_and_wait();
  return w.to_vector<float>();
}

TEST(BlockBytes, ThereAndBackBitForBit) {
  for (const BlockType type : kTypes) {
    const std::vector<std::byte> bytes = random_blocks(type);
    const QuantizedWeight q = from_block_bytes("w", type, kShape, bytes, Device::cpu());
    EXPECT_EQ(testing::download_bytes(to_block_bytes("w", q)), bytes) << block_format(type).name;
    EXPECT_EQ(format_of(q), WeightFormat(type));
    EXPECT_EQ(weight_shape(q), kShape);
  }
}

// Of what is stored in blocks, as matrix products decode it: the values that GGUF's own rule gives.
TEST(BlockBytes, ProductsDecodeWhatGgufDecodes) {
  for (const Device& device : testing::test_devices()) {
    for (const BlockType type : kTypes) {
      const std::vector<std::byte> bytes = random_blocks(type);
      std::vector<float> wanted(static_cast<std::size_t>(kShape.numel()));
      decode_gguf_blocks(gguf_type(type), bytes, wanted);
      EXPECT_EQ(dequantized(from_block_bytes("w", type, kShape, bytes, device)), wanted)
          << block_format(type).name;
    }
  }
}

TEST(BlockBytes, WhatFitsOrNotIsSaid) {
  const auto code = ErrorCode::invalid_argument;
  const Device device = Device::cpu();
  const std::vector<std::byte> bytes(144);
  MIXTAPE_EXPECT_ERROR(from_block_bytes("w", BlockType::q4_k, {1, 128}, bytes, device), code,
                       "w: has shape [1,128], expected rows that are multiples of 256");
  MIXTAPE_EXPECT_ERROR(from_block_bytes("w", BlockType::q4_k, {2, 256}, bytes, device), code,
                       "w: 144 bytes, expected 288");
  QuantizedWeight q = from_block_bytes("w", BlockType::q4_k, {1, 256}, bytes, device);
  q.blocks.biases = Buffer::from(device, {1, 1}, std::vector<float>{-70000.0f});
  MIXTAPE_EXPECT_ERROR(to_block_bytes("w", q), code, "w.biases: value -70000 at position 0 overflows f16");
  q.blocks.biases = Buffer::from(device, {1, 1}, std::vector<float>{NAN});
  MIXTAPE_EXPECT_ERROR(to_block_bytes("w", q), code, "w: bias of a block is nan");
  const Buffer w = upload(device, testing::random_tensor(DType::f32, {2, 64}, 1));
  MIXTAPE_EXPECT_ERROR(to_block_bytes("w", quantize_matrix("w", w, {4, 32}, Rounding::gpu, DType::f32)), code,
                       "w: has 4 bits, group 32, expected blocks");
}

TEST(BlockCodec, PartsAreWhatTrains) {
  const auto suffixes = [](BlockType type) {
    std::vector<std::string> found;
    for (const WeightPart& part : codec_of(WeightFormat(type)).parts({4, 512}, type, DType::bf16)) {
      found.push_back(str(part.suffix, part.dtype, part.shape, part.trains ? " trains" : ""));
    }
    return found;
  };
  EXPECT_THAT(suffixes(BlockType::q4_k),
              ::testing::ElementsAre(".weightu32[4,64]", ".scalesf32[4,2] trains", ".biasesf32[4,2] trains",
                                     ".sub_scalesf32[4,16] trains", ".sub_biasesf32[4,16] trains"));
  EXPECT_THAT(suffixes(BlockType::q6_k), ::testing::ElementsAre(".weightu32[4,96]", ".scalesf32[4,2] trains",
                                                                ".sub_scalesf32[4,32] trains"));
  EXPECT_THAT(suffixes(BlockType::q5_1), ::testing::ElementsAre(".weightu32[4,80]", ".scalesf32[4,16] trains",
                                                                ".biasesf32[4,16] trains"));
  EXPECT_THAT(suffixes(BlockType::q8_0), ::testing::ElementsAre(".weightu32[4,128]", ".scalesf32[4,16]"));
  EXPECT_EQ(bytes_of(BlockType::q4_k, {4, 512}), 4 * 2 * 144u);
  EXPECT_EQ(bytes_of(BlockType::q8_0, {4, 512}), 4 * 16 * 34u);
}

TEST(BlockCodec, BuffersAndBack) {
  for (const BlockType type : kTypes) {
    const QuantizedWeight q = from_block_bytes("w", type, kShape, random_blocks(type), Device::cpu());
    const WeightCodec& codec = codec_of(q);
    const std::vector<Buffer> buffers = codec.buffers(q);
    const std::vector<WeightPart> parts = codec.parts(kShape, type, DType::f32);
    ASSERT_EQ(buffers.size(), parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(buffers[i].shape(), parts[i].shape);
    const QuantizedWeight again = codec.weight(buffers, type);
    EXPECT_EQ(testing::download_bytes(again.scales), testing::download_bytes(q.scales));
    EXPECT_EQ(testing::download_bytes(again.biases), testing::download_bytes(q.biases));
    EXPECT_EQ(testing::download_bytes(codec.stored("w", q, DType::bf16).scales),
              testing::download_bytes(q.scales));
  }
}

// Masters between the numbers of a file give its values already while they train, and round to them.
TEST(BlockCodec, StoredIsWhatTrainingSees) {
  for (const BlockType type : kTypes) {
    const QuantizedWeight q = from_block_bytes("w", type, kShape, random_blocks(type), Device::cpu());
    std::vector<Buffer> moved = codec_of(q).buffers(q);
    for (std::size_t i = 1; i < moved.size(); ++i) {
      std::vector<float> values = moved[i].to_vector<float>();
      for (std::size_t k = 0; k < values.size(); ++k) values[k] *= 1.0f + 0.01f * static_cast<float>(k % 7);
      moved[i] = Buffer::from(Device::cpu(), moved[i].shape(), values);
    }
    const QuantizedWeight trained = codec_of(q).weight(moved, type);
    const QuantizedWeight stored = codec_of(q).stored("w", trained, DType::f32);
    EXPECT_EQ(testing::download_bytes(stored.scales), testing::download_bytes(trained.scales));
    const QuantizedWeight read = from_block_bytes(
        "w", type, kShape, testing::download_bytes(to_block_bytes("w", trained)), Device::cpu());
    EXPECT_EQ(dequantized(read), dequantized(trained)) << block_format(type).name;
  }
}

TEST(BlockCodec, GradientsReachEveryPart) {
  for (const Device& device : testing::test_devices()) {
    for (const BlockType type : kTypes) {
      const QuantizedWeight q = from_block_bytes("w", type, kShape, random_blocks(type), device);
      Tape tape(device);
      const std::vector<Buffer> buffers = codec_of(q).buffers(q);
      std::vector<Var> parts;
      for (std::size_t i = 1; i < buffers.size(); ++i) parts.push_back(tape.parameter(buffers[i]));
      const Var w = dequantize_affine(codec_of(q).on_tape(q, parts), DType::f32);
      tape.backward(w, upload(device, testing::random_tensor(DType::f32, kShape, 3)));
      tape.encoder().commit_and_wait();
      for (const Var& part : parts) {
        ASSERT_TRUE(part.grad()) << block_format(type).name;
        EXPECT_GT(mean_magnitude(part.grad()), 0.0);
      }
    }
  }
}

// One hundredth of its unit changes scales and biases by about as much as one hundredth of a mean scale.
TEST(BlockCodec, UnitsMoveScalesAndBiasesAlike) {
  for (const BlockType type : kTypes) {
    const Buffer w = upload(Device::cpu(), testing::random_tensor(DType::f32, kShape, 3));
    const QuantizedWeight q = quantize_matrix("w", w, type, Rounding::gpu, DType::f32);
    const std::vector<Buffer> buffers = codec_of(q).buffers(q);
    const double scale = mean_magnitude(q.scales);
    const BlockScales& b = q.blocks;
    EXPECT_DOUBLE_EQ(codec_of(q).unit(q, 1), mean_magnitude(b.scales));
    for (std::size_t part = 2; part < buffers.size(); ++part) {
      const double unit = codec_of(q).unit(q, part);
      if (overlap(buffers[part], b.sub_scales ? b.sub_scales : q.codes)) {
        EXPECT_DOUBLE_EQ(unit, mean_magnitude(b.sub_scales));
      } else if (b.biases && overlap(buffers[part], b.biases)) {
        EXPECT_DOUBLE_EQ(unit * (b.sub_biases ? mean_magnitude(b.sub_biases) : 1.0), scale);
      } else {
        EXPECT_DOUBLE_EQ(unit * mean_magnitude(b.biases), scale);
      }
    }
  }
}

}  // namespace
}  // namespace mixtape
