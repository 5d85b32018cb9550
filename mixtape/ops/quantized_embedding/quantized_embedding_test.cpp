#include "mixtape/ops/quantized_embedding/quantized_embedding.h"

#include "mixtape/ops/embedding/embedding.h"
#include "mixtape/ops/quantize/quantize_check.h"
#include "mixtape/ops/quantized_embedding/quantized_embedding_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::HostTensor;

TEST(QuantizedEmbedding, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes)
      check_ops(device, quantized_embedding_checks(device, dtype));
  }
}

// The composition: decode the table, look up, and reduce the table's gradient.
TEST(QuantizedEmbedding, SameBitsAsTheComposition) {
  for (const Device& device : testing::test_devices()) {
    const AffineParams params{4, 32};
    const std::int64_t rows = 6, hidden = 288, count = 2000;
    HostTensor places = testing::random_indices({count}, 4, rows - 1);
    for (std::size_t i = 0; i < 1200; ++i) places.values[i] = 2;
    const Buffer ids = upload(device, places);
    const Buffer codes = upload(device, random_codes({rows, params.packed_cols(hidden)}, 1));
    const Buffer scales = upload(device, testing::random_tensor(DType::f32, {rows, hidden / 32}, 2));
    const Buffer biases = upload(device, testing::random_tensor(DType::f32, {rows, hidden / 32}, 3));
    const Buffer dy = upload(device, testing::random_tensor(DType::f32, {count, hidden}, 5));
    const auto run = [&](bool is_fused) {
      Tape tape(device);
      const Var s = tape.parameter(scales), b = tape.parameter(biases);
      const QuantizedVar table{codes, s, b, params};
      const Var y = is_fused ? quantized_embedding(table, ids, DType::f32)
                             : embedding(dequantize_affine(table, DType::f32), ids);
      tape.backward(y, dy);
      tape.encoder().commit_and_wait();
      return std::vector<std::vector<float>>{y.value().to_vector<float>(), s.grad().to_vector<float>(),
                                             b.grad().to_vector<float>()};
    };
    const auto fused = run(true);
    EXPECT_EQ(fused, run(false));
    for (std::size_t j = 0; j < 9; ++j) EXPECT_EQ(fused[1][5 * 9 + j], 0.0f);  // row 5 never occurs
  }
}

// y and dy that begin beside a pack; y is the CPU's, byte for byte.
TEST(QuantizedEmbedding, SameBitsInUnalignedViews) {
  const AffineParams params{4, 32};
  const std::int64_t rows = 6, hidden = 288, count = 400;
  const auto run = [&](const Device& device, std::int64_t offset) {
    const auto view = [&](DType dtype, std::uint64_t seed) {
      const std::int64_t n = count * hidden;
      const Buffer whole = upload(device, testing::random_tensor(dtype, {offset + n}, seed));
      return whole.slice(offset, offset + n).reshape({count, hidden});
    };
    const Buffer ids = upload(device, testing::random_indices({count}, 4, rows));
    const Buffer codes = upload(device, random_codes({rows, params.packed_cols(hidden)}, 1));
    const Buffer scales = upload(device, testing::random_tensor(DType::f32, {rows, hidden / 32}, 2));
    const Buffer dy = view(DType::bf16, 5), y = view(DType::bf16, 6);
    dy.write_bytes(
        testing::download_bytes(upload(device, testing::random_tensor(DType::bf16, dy.shape(), 7))).data());
    const Buffer dscales = device.alloc(DType::f32, scales.shape());
    CommandEncoder encoder(device);
    const QuantizedWeight table{codes, scales, scales, params};
    quantized_embedding_forward(encoder, table, ids, y);
    quantized_embedding_backward(encoder, table, ids, dy, {dscales, Accumulate::no}, {});
    encoder.commit_and_wait();
    return std::vector<std::vector<std::byte>>{testing::download_bytes(y), testing::download_bytes(dscales)};
  };
  for (const Device& device : testing::test_devices()) {
    const auto aligned = run(device, 0);
    EXPECT_TRUE(aligned == run(device, 1)) << device.name();
    EXPECT_TRUE(aligned[0] == run(Device::cpu(), 0)[0]) << device.name();
  }
}

TEST(QuantizedEmbedding, AccumulateLeavesOtherRowsAlone) {
  for (const Device& device : testing::test_devices()) {
    const AffineParams params{8, 32};
    const Buffer codes = upload(device, random_codes({3, params.packed_cols(32)}, 1));
    const Buffer dy = upload(device, testing::random_tensor(DType::f32, {1, 32}, 5));
    const Buffer scales = device.alloc(DType::f32, {3, 1});
    const Buffer dscales = Buffer::from(device, {3, 1}, std::vector<float>{7, 8, 9});
    const Buffer dbiases = Buffer::from(device, {3, 1}, std::vector<float>{7, 8, 9});
    CommandEncoder encoder(device);
    quantized_embedding_backward(encoder, {codes, scales, scales, params},
                                 Buffer::from(device, {1}, std::vector<std::uint32_t>{1}), dy,
                                 {dscales, Accumulate::yes}, {dbiases, Accumulate::no});
    encoder.commit_and_wait();
    const std::vector<float> s = dscales.to_vector<float>(), b = dbiases.to_vector<float>();
    EXPECT_EQ(s[0], 7.0f);
    EXPECT_NE(s[1], 8.0f);
    EXPECT_EQ(s[2], 9.0f);
    EXPECT_EQ(b[0], 0.0f);
    EXPECT_EQ(b[2], 0.0f);
  }
}

TEST(QuantizedEmbedding, C10_IdOutsideTheTable) {
  for (const Device& device : testing::test_devices()) {
    const testing::Poison poison(device);
    const AffineParams params{4, 32};
    const Buffer codes = device.alloc(DType::u32, {2, 4}), ids = device.alloc(DType::i32, {3});
    const Buffer scales = upload(device, testing::random_tensor(DType::f32, {2, 1}, 2));
    const Buffer y = device.alloc_uninitialized(DType::f32, {3, 32});
    const Buffer dscales = device.alloc(DType::f32, {2, 1});
    const QuantizedWeight table{codes, scales, scales, params};
    ids.copy_from(std::span<const std::int32_t>(std::vector<std::int32_t>{1, -1, 2}));
    CommandEncoder encoder(device);
    quantized_embedding_forward(encoder, table, ids, y);
    const auto code = ErrorCode::index_out_of_range;
    MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), code,
                         "index -1 at position 1 is out of range, expected 0 to 1");
    for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(y.to_vector<float>()[32 + i], 0.0f);
    quantized_embedding_backward(encoder, table, ids, y, {dscales, Accumulate::no}, {});
    MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), code, "index -1 at position 1");
  }
}

TEST(QuantizedEmbedding, EmptyBatch) {
  for (const Device& device : testing::test_devices()) {
    const testing::Poison poison(device);
    Tape tape(device);
    const Buffer codes = device.alloc(DType::u32, {2, 4});
    const Var scales = tape.parameter(device.alloc(DType::f32, {2, 1}));
    const Var y = quantized_embedding({codes, scales, tape.constant(scales.value()), {4, 32}},
                                      device.alloc(DType::u32, {0}), DType::bf16);
    tape.backward(y, y.value());
    EXPECT_EQ(scales.grad().to_vector<float>(), std::vector<float>(2, 0.0f));
  }
}

TEST(QuantizedEmbedding, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer codes = device.alloc(DType::u32, {2, 8}), scales = device.alloc(DType::f32, {2, 1});
  const Buffer ids = device.alloc(DType::u32, {3}), y = device.alloc(DType::f32, {3, 64});
  const auto refuse = [&](const Buffer& c, const Buffer& s, const Buffer& i, const Buffer& out,
                          const char* text) {
    MIXTAPE_EXPECT_ERROR(quantized_embedding_forward(encoder, {c, s, s, {4, 64}}, i, out),
                         ErrorCode::invalid_argument, text);
  };
  refuse(device.alloc(DType::u32, {2, 9}), scales, ids, y, "codes is u32[2,9], expected u32[2,8]");
  refuse(device.alloc(DType::u32, {1, 2, 8}), device.alloc(DType::f32, {1, 2, 1}), ids, y,
         "expected [rows, words]");
  refuse(codes, scales, y, y, "ids is f32[3,64]");
  refuse(codes, scales, device.alloc(DType::u32, {0}), y, "y is f32[3,64], expected f32[0,64]");
  refuse(codes, scales, ids, device.alloc(DType::f32, {3, 32}), "y is f32[3,32], expected f32[3,64]");
  MIXTAPE_EXPECT_ERROR(quantized_embedding_forward(encoder, {codes, scales, scales, {7, 64}}, ids, y),
                       ErrorCode::invalid_argument, "quantized_embedding");
  refuse(codes, ids, ids, y, "scales is u32[3]");
  MIXTAPE_EXPECT_ERROR(quantized_embedding_backward(encoder, {codes, scales, scales, {4, 64}}, ids, scales,
                                                    {y, Accumulate::no}, {}),
                       ErrorCode::invalid_argument, "dy is f32[2,1], expected f32[3,64]");
}

}  // namespace
}  // namespace mixtape
