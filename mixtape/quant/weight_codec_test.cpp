#include "mixtape/quant/weight_codec.h"

#include <gmock/gmock.h>

#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

TEST(AffineCodec, PartsAreWhatAFileHolds) {
  const std::vector<WeightPart> parts = affine_codec().parts({3, 4, 128}, {3, 32}, DType::bf16);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].suffix, ".weight");
  EXPECT_EQ(parts[0].dtype, DType::u32);
  EXPECT_EQ(parts[0].shape, (Shape{3, 4, 12}));
  EXPECT_FALSE(parts[0].trains);
  EXPECT_EQ(parts[2].suffix, ".biases");
  EXPECT_EQ(parts[2].dtype, DType::bf16);
  EXPECT_EQ(parts[2].shape, (Shape{3, 4, 4}));
  EXPECT_EQ(affine_codec().stored_bytes({3, 4, 128}, {3, 32}, DType::bf16), 12 * (12 * 4 + 2 * 4 * 2));
}

TEST(AffineCodec, EightBitsDoNotTrain) {
  for (const WeightPart& part : affine_codec().parts({2, 64}, {8, 64}, DType::f32))
    EXPECT_FALSE(part.trains) << part.suffix;
  EXPECT_TRUE(affine_codec().parts({2, 64}, {6, 64}, DType::f32)[1].trains);
}

TEST(AffineCodec, BuffersAndBack) {
  const Device device = Device::cpu();
  const Buffer w = upload(device, testing::random_tensor(DType::f32, {4, 64}, 1));
  const QuantizedWeight q = quantize_matrix("w", w, {4, 32}, Rounding::gpu, DType::f32);
  const std::vector<Buffer> buffers = affine_codec().buffers(q);
  const QuantizedWeight again = affine_codec().weight(buffers, q.format);
  EXPECT_TRUE(overlap(again.codes, q.codes) && overlap(again.scales, q.scales));
  EXPECT_EQ(weight_shape(q), w.shape());
  EXPECT_EQ(&codec_of(q), &affine_codec());
  for (const std::size_t part : {1u, 2u}) EXPECT_EQ(affine_codec().unit(q, part), mean_magnitude(q.scales));
  const std::vector<WeightPart> parts = affine_codec().parts(w.shape(), q.format, DType::f32);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(buffers[i].shape(), parts[i].shape);
    EXPECT_EQ(buffers[i].dtype(), parts[i].dtype);
  }
  Tape tape(device);
  const Var scales = tape.parameter(q.scales), biases = tape.parameter(q.biases);
  const QuantizedWeight on_tape = affine_codec().on_tape(q, {scales, biases}).value();
  EXPECT_TRUE(overlap(on_tape.codes, q.codes) && on_tape.format == q.format);
  EXPECT_TRUE(overlap(on_tape.scales, q.scales) && overlap(on_tape.biases, q.biases));
}

}  // namespace
}  // namespace mixtape
