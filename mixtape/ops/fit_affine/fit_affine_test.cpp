#include "mixtape/ops/fit_affine/fit_affine.h"

#include <gmock/gmock.h>

#include "mixtape/ops/fit_affine/fit_affine_cases.h"
#include "mixtape/ops/fit_affine/fit_affine_oracle.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/instruction_sets.h"

namespace mixtape {
namespace {

using testing::Doubles;
using testing::HostTensor;

constexpr auto kInvalid = ErrorCode::invalid_argument;
constexpr int kWidths[] = {2, 3, 4, 5, 6, 8};

TEST(FitAffine, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, fit_affine_checks(device, dtype));
  }
}

using Bytes = std::vector<std::vector<std::byte>>;
Bytes bytes_of(const QuantizedWeight& q) {
  Bytes all;
  for (const Buffer& b : {q.codes, q.scales, q.biases}) all.push_back(testing::download_bytes(b));
  return all;
}

// Experts, whose last rows don't fill a vector, in a view that begins at an odd element.
Bytes bytes_of_fit(const Device& device, AffineParams p, DType dtype) {
  const HostTensor all = heavy_tailed_tensor({2 * 19 * 256 + 1}, 8);
  const Buffer w = buffer_of(device, all).slice(1, 2 * 19 * 256 + 1).reshape({2, 19, 256});
  return bytes_of(fit_weight(w, buffer_of(device, random_importance({2, 256}, 9)), p, dtype));
}

TEST(FitAffine, SameBytesOnEveryDevice) {
  for (const Device& device : testing::test_devices()) {
    for (const int bits : kWidths) {
      const DType dtype = bits % 3 == 0 ? DType::f16 : bits % 2 == 0 ? DType::bf16 : DType::f32;
      const AffineParams p{bits, bits == 3 ? 32 : bits < 6 ? 64 : 128};
      EXPECT_EQ(bytes_of_fit(device, p, dtype), bytes_of_fit(Device::cpu(), p, dtype))
          << device.name() << bits;
    }
    const std::pair<AffineParams, DType> formats[] = {
        {{2, 32}, DType::f32}, {{3, 64}, DType::bf16}, {{8, 128}, DType::bf16}};
    for (const Weights& w : degenerate_weights()) {
      for (const auto& [p, dtype] : formats) {
        const auto fit = [&, p = p, dtype = dtype](const Device& d) {
          return bytes_of(fit_weight(buffer_of(d, w.w), buffer_of(d, w.importance), p, dtype));
        };
        EXPECT_EQ(fit(device), fit(Device::cpu())) << w.name << " on " << device.name() << ", " << p.bits;
      }
    }
  }
}

TEST(FitAffine, EveryInstructionSetGivesTheSameBits) {
  const Bytes wanted = bytes_of_fit(Device::cpu(), {4, 64}, DType::bf16);
  testing::for_every_instruction_set([&] {
    EXPECT_EQ(bytes_of_fit(Device::cpu(), {4, 64}, DType::bf16), wanted);
  });
}

TEST(FitAffine, SameBitsForAnyNumberOfThreads) {
  const HostTensor w = testing::random_tensor(DType::f32, {70, 128}, 1), h = random_importance({128}, 2);
  for (const Device& device : testing::test_devices()) {
    testing::expect_same_bits(
        "fit_affine",
        [&] {
          const QuantizedWeight q =
              fit_weight(buffer_of(device, w), buffer_of(device, h), {4, 32}, DType::bf16);
          return std::vector<Buffer>{q.codes, q.scales, q.biases};
        },
        3);
  }
}

// A group depends on nothing beside it: rows, and columns with their importance.
TEST(FitAffine, RowsAndGroupsStandAlone) {
  const HostTensor w = heavy_tailed_tensor({21, 192}, 1), h = random_importance({192}, 2);
  for (const Device& device : testing::test_devices()) {
    const Doubles all = decoded(fit_weight(buffer_of(device, w), buffer_of(device, h), {3, 64}, DType::f16));
    for (const std::size_t row : {0u, 15u, 16u, 20u}) {
      for (const std::size_t col : {0u, 64u, 128u}) {
        const HostTensor one = f32_tensor({64}, [&](std::size_t i) { return w.values[row * 192 + col + i]; });
        const HostTensor own = f32_tensor({64}, [&](std::size_t i) { return h.values[col + i]; });
        const Doubles alone =
            decoded(fit_weight(buffer_of(device, one), buffer_of(device, own), {3, 64}, DType::f16));
        const auto from = all.begin() + static_cast<std::ptrdiff_t>(row * 192 + col);
        EXPECT_EQ(alone, Doubles(from, from + 64)) << row << " " << col;
      }
    }
  }
}

TEST(FitAffine, CodesAreTheNearestOfTheStoredPair) {
  const HostTensor w = heavy_tailed_tensor({9, 128}, 1);
  for (const Device& device : testing::test_devices()) {
    for (const int bits : {2, 5}) {
      const AffineParams p{bits, 32};
      const QuantizedWeight q = fit_weight(buffer_of(device, w), Buffer(), p, DType::bf16);
      const Doubles scales = testing::download(q.scales).values, biases = testing::download(q.biases).values;
      const Doubles found = decoded(q);
      for (std::size_t i = 0; i < found.size(); ++i) {
        const double scale = scales[i / 32], bias = biases[i / 32];
        const oracle::FitGroup g{{}, {}, bits, DType::bf16};
        const double nearest = g.code(w.values[i], scale, bias) * scale + bias;
        EXPECT_LE(std::abs(found[i] - w.values[i]),
                  std::abs(nearest - w.values[i]) + 1e-6 * (std::abs(w.values[i]) + std::abs(bias)));
      }
    }
  }
}

// Weights that lie on a grid whose scale and bias the dtype holds come back as they were.
TEST(FitAffine, AGridIsFoundExactly) {
  const HostTensor random = testing::random_indices({6, 128}, 3, 1 << 16);
  for (const Device& device : testing::test_devices()) {
    for (const int bits : kWidths) {
      const int codes = 1 << bits;
      const HostTensor w = f32_tensor({6, 128}, [&](std::size_t i) {
        const int code =
            i % 32 < 2 ? (i % 32 == 0 ? 0 : codes - 1) : static_cast<int>(random.values[i]) % codes;
        return code * 0.0625 - 1.5;
      });
      const QuantizedWeight q = fit_weight(
          buffer_of(device, w), buffer_of(device, random_importance({128}, 4)), {bits, 32}, DType::bf16);
      EXPECT_EQ(decoded(q), w.values) << bits;
    }
  }
}

TEST(FitAffine, ImportanceOfZeroHasNoSay) {
  const HostTensor h = f32_tensor({32}, [](std::size_t c) { return c % 4 == 1 ? 0.0 : 1.0; });
  HostTensor w = testing::random_tensor(DType::f32, {1, 32}, 1);
  for (const Device& device : testing::test_devices()) {
    const auto pair = [&] {
      const QuantizedWeight q = fit_weight(buffer_of(device, w), buffer_of(device, h), {3, 32}, DType::f32);
      return Doubles{testing::download(q.scales).values[0], testing::download(q.biases).values[0]};
    };
    const Doubles before = pair();
    for (std::size_t c = 1; c < 32; c += 4) w.values[c] = 0.25;
    EXPECT_EQ(pair(), before);
  }
}

TEST(FitAffine, NoImportanceAtAllIsEqualImportance) {
  const HostTensor w = testing::random_tensor(DType::f32, {3, 64}, 1);
  for (const Device& device : testing::test_devices()) {
    const auto fit = [&](const Buffer& h) {
      return bytes_of(fit_weight(buffer_of(device, w), h, {4, 32}, DType::bf16));
    };
    const Bytes equal = fit(Buffer());
    for (const float value : {0.0f, 1.0f, 4.0f})
      EXPECT_EQ(fit(Buffer::from(device, {64}, std::vector<float>(64, value))), equal) << value;
  }
}

TEST(FitAffine, H5_WhatIsNotFiniteIsRefused) {
  for (const Device& device : testing::test_devices()) {
    const Buffer h = buffer_of(device, random_importance({128}, 1));
    for (const double bad : {HUGE_VAL, -HUGE_VAL, static_cast<double>(NAN)}) {
      HostTensor w = testing::random_tensor(DType::f32, {40, 128}, 5);
      w.values[23 * 128 + 77] = w.values[23 * 128 + 78] = w.values[35 * 128] = bad;
      MIXTAPE_EXPECT_ERROR(fit_weight(buffer_of(device, w), h, {4, 64}, DType::f32), kInvalid,
                           "fit_affine: weight at row 23, column 77 is");
    }
    HostTensor w = testing::random_tensor(DType::f32, {3, 128}, 5);
    w.values[128 + 33] = 3e38;
    w.values[128 + 35] = -3e38;
    MIXTAPE_EXPECT_ERROR(fit_weight(buffer_of(device, w), h, {4, 32}, DType::f32), kInvalid,
                         "row 1, column 35 is");
    w.values[128 + 33] = 70000.0;
    w.values[128 + 35] = 0.0;
    MIXTAPE_EXPECT_ERROR(fit_weight(buffer_of(device, w), h, {4, 32}, DType::f16), kInvalid,
                         "fit_affine: scale or bias of the group at row 1, column 32 overflows f16");
  }
}

TEST(FitAffine, BadImportanceIsRefused) {
  for (const Device& device : testing::test_devices()) {
    HostTensor w = testing::random_tensor(DType::f32, {2, 3, 64}, 5);
    w.values[0] = NAN;  // importance comes first
    for (const double bad : {-0x1p-100, HUGE_VAL, static_cast<double>(NAN)}) {
      HostTensor h = random_importance({2, 64}, 1);
      h.values[64 + 7] = h.values[64 + 9] = bad;
      MIXTAPE_EXPECT_ERROR(fit_weight(buffer_of(device, w), buffer_of(device, h), {4, 32}, DType::f32),
                           kInvalid,
                           str("fit_affine: importance at position 71 is ", static_cast<float>(bad)));
    }
  }
}

TEST(FitAffine, WithoutRowsNothingIsWritten) {
  for (const Device& device : testing::test_devices()) {
    const Buffer h = Buffer::from(device, {64}, std::vector<float>(64, 1.0f));
    EXPECT_EQ(fit_weight(device.alloc(DType::f32, {0, 64}), h, {4, 32}, DType::f32).codes.numel(), 0);
    for (const Shape& shape : {Shape{2, 0, 64}, Shape{0, 3, 64}}) {
      const Buffer w = device.alloc(DType::f32, shape), own = device.alloc(DType::f32, {shape[0], 64});
      EXPECT_EQ(fit_weight(w, own, {4, 32}, DType::f32).scales.numel(), 0);
    }
  }
}

TEST(FitAffine, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer w = device.alloc(DType::f32, {2, 4, 64}), h = device.alloc(DType::f32, {2, 64});
  const Buffer codes = device.alloc(DType::u32, {2, 4, 8});
  const Buffer scales = device.alloc(DType::bf16, {2, 4, 2}), biases = device.alloc(DType::bf16, {2, 4, 2});
  const auto fit = [&](const Buffer& a, const Buffer& i, const Buffer& c, const Buffer& s, AffineParams p) {
    fit_affine_forward(encoder, a, i, {c, s, biases, p});
  };
  const AffineParams p{4, 32};
  fit(w, h, codes, scales, p);
  MIXTAPE_EXPECT_ERROR(fit(w, h, codes, scales, {7, 32}), kInvalid, "fit_affine: bits is 7");
  MIXTAPE_EXPECT_ERROR(fit(w, h, codes, scales, {4, 16}), kInvalid, "group size is 16, expected 32, 64");
  MIXTAPE_EXPECT_ERROR(fit(w, h, codes, scales, {4, 128}), kInvalid, "multiple of 128");
  MIXTAPE_EXPECT_ERROR(fit(device.alloc(DType::bf16, {2, 4, 64}), h, codes, scales, p), kInvalid,
                       "fit_affine: w is bf16[2,4,64], expected f32");
  MIXTAPE_EXPECT_ERROR(fit(w, device.alloc(DType::f32, {3, 64}), codes, scales, p), kInvalid,
                       "importance is f32[3,64], expected f32[2,64]");
  MIXTAPE_EXPECT_ERROR(fit(w, device.alloc(DType::f32, {32}), codes, scales, p), kInvalid,
                       "importance is f32[32], expected f32[64]");
  MIXTAPE_EXPECT_ERROR(fit(w.reshape({8, 64}), h, codes, scales, p), kInvalid,
                       "w is f32[8,64], expected f32[E,N,K] for importance f32[2,64]");
  MIXTAPE_EXPECT_ERROR(fit(w, h, codes, scales, {5, 32}), kInvalid,
                       "codes is u32[2,4,8], expected u32[2,4,10]");
  MIXTAPE_EXPECT_ERROR(fit(w, h, codes, device.alloc(DType::f32, {2, 4, 2}), p), kInvalid, "biases is bf16");
  MIXTAPE_EXPECT_ERROR(fit(w, h, codes, biases, p), kInvalid, "biases shares memory with scales");
  encoder.commit_and_wait();
}

}  // namespace
}  // namespace mixtape
