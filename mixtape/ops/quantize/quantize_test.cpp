#include "mixtape/ops/quantize/quantize.h"

#include <gmock/gmock.h>

#include <cmath>

#include "mixtape/ops/quantize/quantize_check.h"
#include "mixtape/ops/quantize/quantize_cpu.h"
#include "mixtape/ops/quantize/quantize_oracle.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/instruction_sets.h"

namespace mixtape {
namespace {

using testing::Doubles;
using testing::HostTensor;

constexpr int kWidths[] = {2, 3, 4, 5, 6, 8};
constexpr int kGroups[] = {16, 32, 64, 128};
constexpr auto kInvalid = ErrorCode::invalid_argument;

TEST(Quantize, DequantizeMatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes)
      check_ops(device, dequantize_affine_checks(device, dtype));
  }
}

TEST(Quantize, StackedExpertsAndManyRows) {
  for (const Device& device : testing::test_devices()) {
    check_op(device, dequantize_affine_check(DType::bf16, DType::f32, {4, 130, 64}, {3, 32}));
  }
}

QuantizedWeight quantize(const Buffer& w, AffineParams p, Rounding rounding, DType scale_dtype) {
  const testing::Poison poison(w.device());
  CommandEncoder encoder(w.device());
  const QuantizedWeight q = alloc_quantized(w.device(), w.shape(), p, scale_dtype);
  quantize_affine_forward(encoder, w, q, rounding);
  encoder.commit_and_wait();
  return q;
}

Buffer dequantize(const QuantizedWeight& q, DType dtype) {
  const Device& device = q.codes.device();
  const testing::Poison poison(device);
  CommandEncoder encoder(device);
  const Buffer w = device.alloc_uninitialized(dtype, dequantized_shape("test", q));
  dequantize_affine_forward(encoder, q, w);
  encoder.commit_and_wait();
  return w;
}

std::vector<float> as_floats(const Buffer& b) {
  const Doubles values = testing::download(b).values;
  return {values.begin(), values.end()};
}

// The op over whole tensors against affine.h row by row, bit for bit, and the SIMD decoder against decode().
void expect_codec(const Device& device, DType dtype, DType scale_dtype, AffineParams p, Rounding rounding) {
  SCOPED_TRACE(str(dtype, " ", scale_dtype, " ", p.bits, " ", p.group_size, " ", name(rounding)));
  const Shape shape{5, 256};
  const Buffer w = upload(device, testing::random_tensor(dtype, shape, 9, 0.02));
  const QuantizedWeight q = quantize(w, p, rounding, scale_dtype);
  const std::vector<float> all = as_floats(w);
  const auto words = q.codes.to_vector<std::uint32_t>();
  const std::vector<float> scales = as_floats(q.scales), biases = as_floats(q.biases);
  const std::vector<float> decoded = as_floats(dequantize(q, DType::f32));
  const auto groups = static_cast<std::size_t>(p.groups(256)),
             packed = static_cast<std::size_t>(p.packed_cols(256));
  for (std::size_t r = 0; r < 5; ++r) {
    std::vector<std::uint32_t> row_words(packed);
    std::vector<float> row_scales(groups), row_biases(groups), row_decoded(256);
    quantize_row(std::span(all).subspan(r * 256, 256), p, rounding, row_words, row_scales, row_biases);
    EXPECT_TRUE(
        std::equal(row_words.begin(), row_words.end(), words.begin() + static_cast<long>(r * packed)));
    for (std::size_t g = 0; g < groups; ++g) {
      const HostTensor stored = testing::make_tensor(scale_dtype, {2}, {row_scales[g], row_biases[g]});
      EXPECT_EQ(scales[r * groups + g], stored.values[0]);
      EXPECT_EQ(biases[r * groups + g], stored.values[1]);
    }
    dequantize_row(row_words, std::span(scales).subspan(r * groups, groups),
                   std::span(biases).subspan(r * groups, groups), p, row_decoded);
    EXPECT_TRUE(
        std::equal(row_decoded.begin(), row_decoded.end(), decoded.begin() + static_cast<long>(r * 256)));
  }
}

TEST(Quantize, EqualsTheRowCodecBitForBit) {
  for (const Device& device : testing::test_devices()) {
    for (const int bits : kWidths) {
      for (const int group : kGroups) {
        expect_codec(device, DType::f32, DType::f32, {bits, group}, Rounding::gpu);
        expect_codec(device, DType::bf16, DType::bf16, {bits, group}, Rounding::cpu);
      }
    }
    expect_codec(device, DType::f32, DType::bf16, {4, 64}, Rounding::gpu);
    expect_codec(device, DType::f16, DType::f32, {4, 64}, Rounding::gpu);
    expect_codec(device, DType::f16, DType::f16, {4, 64}, Rounding::gpu);
  }
}

TEST(Quantize, EveryInstructionSetGivesTheSameBits) {
  testing::for_every_instruction_set([] {
    for (const int bits : kWidths) {
      expect_codec(Device::cpu(), DType::f32, DType::f32, {bits, 64}, Rounding::gpu);
      expect_codec(Device::cpu(), DType::bf16, DType::bf16, {bits, 32}, Rounding::cpu);
      expect_codec(Device::cpu(), DType::f16, DType::f16, {bits, 32}, Rounding::cpu);
      expect_codec(Device::cpu(), DType::bf16, DType::f32, {bits, 16}, Rounding::cpu);
    }
  });
}

TEST(Quantize, TiesRoundAsTheModeSays) {
  for (const Device& device : testing::test_devices()) {
    std::vector<float> w(512);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>((i * 7) % 31) / 2.0f - 7.5f;
    for (const Rounding rounding : {Rounding::gpu, Rounding::cpu}) {
      const QuantizedWeight q = quantize(Buffer::from(device, {1, 512}, w), {4, 32}, rounding, DType::f32);
      std::vector<std::uint32_t> words(64);
      std::vector<float> scales(16), biases(16);
      quantize_row(w, {4, 32}, rounding, words, scales, biases);
      EXPECT_EQ(q.codes.to_vector<std::uint32_t>(), words);
      EXPECT_EQ(q.scales.to_vector<float>(), scales);
      EXPECT_EQ(q.biases.to_vector<float>(), biases);
    }
  }
}

// Groups of all magnitudes, all negative, constant and zero, in a view that begins at an odd element.
Buffer awkward_weight(const Device& device, DType dtype, std::int64_t rows) {
  HostTensor w = testing::random_tensor(dtype, {rows * 384 + 1}, 21);
  for (std::size_t i = 1; i < w.values.size(); ++i) {
    const std::size_t group = (i - 1) / 128;
    w.values[i] *= std::pow(10.0, static_cast<double>(group % 13) - 8.0);
    if (group % 5 == 1) w.values[i] = -std::abs(w.values[i]);
    if (group % 7 == 3) w.values[i] = group % 2 == 0 ? 0.0 : -9.0;
  }
  w = testing::make_tensor(dtype, w.shape, w.values);
  return upload(device, w).slice(1, rows * 384 + 1).reshape({rows, 384});
}

TEST(Quantize, SameBytesOnEveryDevice) {
  const auto bytes = [](const Device& device, DType dtype, DType scale_dtype, AffineParams p,
                        Rounding rounding) {
    const QuantizedWeight q = quantize(awkward_weight(device, dtype, 7), p, rounding, scale_dtype);
    std::vector<std::vector<std::byte>> all;
    for (const Buffer& b : {q.codes, q.scales, q.biases}) all.push_back(testing::download_bytes(b));
    for (const DType out : testing::kValueDtypes) all.push_back(testing::download_bytes(dequantize(q, out)));
    return all;
  };
  for (const Device& device : testing::test_devices()) {
    for (const Rounding rounding : {Rounding::gpu, Rounding::cpu}) {
      for (const int bits : kWidths) {
        for (const int group : kGroups) {
          for (const DType dtype : testing::kValueDtypes) {
            const DType scale_dtype = bits % 2 == 0 ? dtype : DType::f32;
            EXPECT_EQ(bytes(device, dtype, scale_dtype, {bits, group}, rounding),
                      bytes(Device::cpu(), dtype, scale_dtype, {bits, group}, rounding))
                << device.name() << " " << dtype << " " << bits << " " << group << " " << name(rounding);
          }
        }
      }
    }
  }
}

// Into a view that begins at an odd element.
TEST(Quantize, DecodesToAnyAddress) {
  const AffineParams p{4, 64};
  const HostTensor w = testing::random_tensor(DType::f32, {3, 192}, 8);
  for (const Device& device : testing::test_devices()) {
    const QuantizedWeight q = quantize(upload(device, w), p, Rounding::gpu, DType::f32);
    const Buffer out = device.alloc(DType::bf16, {3 * 192 + 1}).slice(1, 3 * 192 + 1).reshape({3, 192});
    CommandEncoder encoder(device);
    dequantize_affine_forward(encoder, q, out);
    encoder.commit_and_wait();
    EXPECT_EQ(testing::download_bytes(out), testing::download_bytes(dequantize(q, DType::bf16)));
  }
}

TEST(Quantize, NonFiniteScalesGoThrough) {
  for (const Device& device : testing::test_devices()) {
    const QuantizedWeight q{Buffer::from(device, {1, 8}, std::vector<std::uint32_t>(8, 0x76543210u)),
                            Buffer::from(device, {1, 2}, std::vector<float>{HUGE_VALF, 3e38f}),
                            Buffer::from(device, {1, 2}, std::vector<float>{1.0f, -1.0f}),
                            {4, 32}};
    for (const DType dtype : testing::kValueDtypes) {
      const std::vector<float> w = as_floats(dequantize(q, dtype));
      EXPECT_TRUE(std::isnan(w[0]) && std::isinf(w[1]) && std::isnan(w[8]));  // 0 * inf
      EXPECT_EQ(w[32], -1.0f);
      EXPECT_TRUE(std::isinf(w[34]));
    }
  }
}

TEST(Quantize, HalfPrecisionScales) {
  for (const Device& device : testing::test_devices()) {
    const Buffer w = upload(device, testing::random_tensor(DType::f16, {2, 64}, 4, 0.5));
    const QuantizedWeight exact = quantize(w, {4, 32}, Rounding::gpu, DType::f32);
    const QuantizedWeight rounded = quantize(w, {4, 32}, Rounding::gpu, DType::f16);
    EXPECT_EQ(rounded.codes.to_vector<std::uint32_t>(), exact.codes.to_vector<std::uint32_t>());
    const std::vector<float> wanted = as_floats(exact.scales), found = as_floats(rounded.scales);
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(found[i], static_cast<float>(f16(wanted[i])));
  }
}

// One fma in f32: code * scale may pass 65504 on its way; results are infinite from 65520 on, or subnormal.
TEST(Quantize, RangeOfF16) {
  for (const Device& device : testing::test_devices()) {
    const QuantizedWeight q{Buffer::from(device, {1, 12}, std::vector<std::uint32_t>(12, 0xfedcba98u)),
                            testing::upload(device, {DType::f16, {1, 3}, {5000.0, 0x1p-24, 5000.0}}),
                            testing::upload(device, {DType::f16, {1, 3}, {-9504.0, -8 * 0x1p-24, 0.0}}),
                            {4, 32}};
    const std::vector<float> w = as_floats(dequantize(q, DType::f16));
    EXPECT_EQ(w[0], 30496.0f);
    EXPECT_EQ(w[7], 65504.0f);  // of 75000 - 9504
    EXPECT_EQ(w[71], HUGE_VALF);
    for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(w[32 + i], static_cast<float>(i) * 0x1p-24f);
  }
}

TEST(Quantize, H4_ErrorFollowsTheStoredScale) {
  for (const Device& device : testing::test_devices()) {
    std::vector<float> values(32);
    for (std::size_t i = 0; i < 32; ++i) values[i] = i % 2 == 0 ? 0.01f : -0.01f;
    values[20] = 100.0f;
    const Buffer w = Buffer::from(device, {1, 32}, values);
    const std::vector<float> f32 =
        as_floats(dequantize(quantize(w, {4, 32}, Rounding::gpu, DType::f32), DType::f32));
    const std::vector<float> half =
        as_floats(dequantize(quantize(w, {4, 32}, Rounding::gpu, DType::bf16), DType::f32));
    EXPECT_EQ(f32[20], 100.0f);
    EXPECT_EQ(half[20], 100.0f);
    for (const std::size_t i : {0, 1, 19, 21, 31}) {
      EXPECT_LE(std::fabs(f32[i]), 2.4e-6f);
      EXPECT_EQ(std::fabs(half[i]), 0.15625f);
    }
  }
}

TEST(Quantize, H5_NonFiniteWeightIsRefused) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      for (const double bad : {HUGE_VAL, -HUGE_VAL, static_cast<double>(NAN)}) {
        HostTensor w = testing::random_tensor(dtype, {700, 128}, 5);
        w.values[130 * 128 + 77] = w.values[130 * 128 + 78] = w.values[600 * 128] = bad;
        MIXTAPE_EXPECT_ERROR(quantize(upload(device, w), {4, 64}, Rounding::gpu, DType::f32), kInvalid,
                             "quantize_affine: weight at row 130, column 77 is");
      }
    }
    HostTensor w = testing::random_tensor(DType::f32, {3, 64}, 5);
    w.values[64 + 33] = 3e38f;
    w.values[64 + 35] = -3e38f;
    MIXTAPE_EXPECT_ERROR(quantize(upload(device, w), {4, 32}, Rounding::cpu, DType::f32), kInvalid,
                         "row 1, column 35");
    w.values[64 + 33] = 70000.0;
    w.values[64 + 35] = 0.0;
    MIXTAPE_EXPECT_ERROR(quantize(upload(device, w), {4, 32}, Rounding::cpu, DType::f16), kInvalid,
                         "scale or bias of the group at row 1, column 32 overflows f16");
  }
}

// The same as the contiguous copy: a buffer cannot be a strided view, so its transpose is a copy.
TEST(Quantize, H11_TransposedWeight) {
  for (const Device& device : testing::test_devices()) {
    const HostTensor w = testing::random_tensor(DType::f32, {64, 32}, 6);
    HostTensor transposed = w;
    transposed.shape = {32, 64};
    for (std::size_t r = 0; r < 32; ++r) {
      for (std::size_t c = 0; c < 64; ++c) transposed.values[r * 64 + c] = w.values[c * 32 + r];
    }
    const Buffer decoded =
        dequantize(quantize(upload(device, transposed), {4, 32}, Rounding::gpu, DType::f32), DType::f32);
    // Half a step of a 4-bit code over a range of at most 8 standard deviations.
    testing::expect_close("transposed", decoded, transposed.values, {0.0, 0.5 * 8.0 / 15.0});
  }
}

TEST(Quantize, RowsAreDecodedFromAnyRow) {
  const Device device = Device::cpu();
  for (const int bits : kWidths) {
    const AffineParams p{bits, 32};
    const Buffer w = upload(device, testing::random_tensor(DType::f32, {9, 96}, 7));
    const QuantizedWeight q = quantize(w, p, Rounding::gpu, DType::bf16);
    const std::vector<float> all = as_floats(dequantize(q, DType::f32));
    const cpu::QuantizedRows rows(q);
    std::vector<float> out(3 * 96);
    std::vector<bf16> brain(out.size());
    std::vector<f16> half(out.size());
    for (const std::int64_t first : {0, 2, 6}) {
      cpu::dequantize_rows(rows, first, first + 3, out.data());
      cpu::dequantize_rows(rows, first, first + 3, brain.data());
      cpu::dequantize_rows(rows, first, first + 3, half.data());
      for (std::size_t i = 0; i < out.size(); ++i) {
        EXPECT_EQ(out[i], all[static_cast<std::size_t>(first) * 96 + i]);
        EXPECT_EQ(brain[i], bf16(out[i]));
        EXPECT_EQ(half[i], f16(out[i]));
      }
    }
  }
}

TEST(Quantize, RowGradientsGoWhereTheyAreWanted) {
  const Device device = Device::cpu();
  const AffineParams p{5, 32};
  const Shape shape{4, 64};
  const Buffer codes = upload(device, random_codes(packed_shape(shape, p), 1));
  const HostTensor dw = testing::random_tensor(DType::f32, {2, 64}, 2);
  const std::vector<float> part(dw.values.begin(), dw.values.end());
  std::vector<float> dscales(8, 100.0f), dbiases(8, 200.0f);
  const cpu::QuantizedRows rows({codes, {}, {}, p});
  cpu::reduce_rows(rows, 1, 3, part.data(),
                   {dscales.data(), dbiases.data(), DType::f32, Accumulate::yes, Accumulate::no});
  const Doubles words = testing::download(codes).values;
  const std::vector<Doubles> wanted =
      oracle::dequantize_backward({words.begin() + 10, words.begin() + 30}, dw.values, p, 64);
  for (std::size_t i = 0; i < 8; ++i) {
    const bool inside = i >= 2 && i < 6;
    EXPECT_NEAR(dscales[i], 100.0 + (inside ? wanted[0][i - 2] : 0.0), 2e-4);
    EXPECT_NEAR(dbiases[i], inside ? wanted[1][i - 2] : 200.0, 2e-5);
  }
  std::vector<bf16> brain(8);
  cpu::reduce_rows(rows, 1, 3, part.data(),
                   {nullptr, brain.data(), DType::bf16, Accumulate::no, Accumulate::no});
  std::vector<f16> half(8);
  cpu::reduce_rows(rows, 1, 3, part.data(),
                   {nullptr, half.data(), DType::f16, Accumulate::no, Accumulate::no});
  for (std::size_t i = 2; i < 6; ++i) {
    EXPECT_EQ(brain[i], bf16(dbiases[i]));
    EXPECT_EQ(half[i], f16(dbiases[i]));
  }
}

TEST(Quantize, OnlyTheWantedGradientIsComputed) {
  for (const Device& device : testing::test_devices()) {
    const AffineParams p{4, 32};
    const Shape shape{2, 64};
    Tape tape(device);
    const Buffer codes = upload(device, random_codes(packed_shape(shape, p), 1));
    const Var scales = tape.constant(upload(device, testing::random_tensor(DType::f32, {2, 2}, 2)));
    const Var biases = tape.parameter(upload(device, testing::random_tensor(DType::f32, {2, 2}, 3)));
    const Var w = dequantize_affine({codes, scales, biases, p}, DType::f32);
    const Buffer dy = device.alloc(DType::f32, shape);
    tape.encoder().fill(dy, 0.5f);
    tape.backward(w, dy);
    tape.encoder().commit_and_wait();
    EXPECT_THAT(biases.grad().to_vector<float>(), ::testing::Each(16.0f));
    EXPECT_FALSE(scales.grad());
  }
}

TEST(Quantize, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer w = device.alloc(DType::f32, {4, 64});
  const Buffer codes = device.alloc(DType::u32, {4, 8});
  const Buffer scales = device.alloc(DType::f32, {4, 2});
  const AffineParams p{4, 32};
  const auto forward = [&](const Buffer& a, const Buffer& c, const Buffer& s, const Buffer& b,
                           AffineParams q) {
    quantize_affine_forward(encoder, a, {c, s, b, q});
  };
  MIXTAPE_EXPECT_ERROR(forward(w, codes, scales, scales, {0, 32}), kInvalid, "quantize_affine: bits is 0");
  MIXTAPE_EXPECT_ERROR(forward(w, codes, scales, scales, {4, -1}), kInvalid, "group size is -1");
  MIXTAPE_EXPECT_ERROR(forward(w, codes, scales, scales, {4, 128}), kInvalid, "multiple of 128");
  MIXTAPE_EXPECT_ERROR(forward(Buffer(), codes, scales, scales, p), kInvalid, "w is null");
  MIXTAPE_EXPECT_ERROR(forward(w, codes, scales, scales, {5, 32}), kInvalid,
                       "codes is u32[4,8], expected u32[4,10]");
  MIXTAPE_EXPECT_ERROR(forward(w, codes, w, scales, p), kInvalid, "scales is f32[4,64]");
  MIXTAPE_EXPECT_ERROR(forward(w, codes, scales, device.alloc(DType::bf16, {4, 2}), p), kInvalid,
                       "biases is bf16");
  MIXTAPE_EXPECT_ERROR(forward(device.alloc(DType::f32, {0, 64}), codes, scales, scales, p), kInvalid,
                       "codes is u32[4,8], expected u32[0,8]");
  MIXTAPE_EXPECT_ERROR(dequantize_affine_forward(encoder, {codes, scales, scales, {8, 32}}, w), kInvalid,
                       "dequantize_affine: codes is u32[4,8], expected u32[4,16]");
  MIXTAPE_EXPECT_ERROR(dequantize_affine_forward(encoder, {scales, scales, scales, p}, w), kInvalid,
                       "codes is f32[4,2]");
  MIXTAPE_EXPECT_ERROR(dequantize_affine_forward(encoder, {codes, scales, scales, p}, codes), kInvalid,
                       "w is u32");
  MIXTAPE_EXPECT_ERROR(
      dequantize_affine_backward(encoder, {codes, scales, scales, p}, w, {w, Accumulate::no}, {}), kInvalid,
      "dequantize_affine_backward: dscales is f32[4,64], expected f32[4,2] like scales");
}

}  // namespace
}  // namespace mixtape
