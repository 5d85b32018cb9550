#include "mixtape/ops/quantize/affine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <vector>

#include "mixtape/core/bf16.h"
#include "mixtape/core/error.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using ::testing::ElementsAre;

struct Row {
  std::vector<std::uint32_t> words;
  std::vector<float> scales, biases, decoded;
};

Row quantize(const std::vector<float>& w, AffineParams params, Rounding rounding) {
  const auto cols = static_cast<std::int64_t>(w.size());
  Row row;
  row.words.resize(static_cast<std::size_t>(params.packed_cols(cols)));
  row.scales.resize(static_cast<std::size_t>(params.groups(cols)));
  row.biases = row.scales;
  row.decoded.resize(w.size());
  quantize_row(w, params, rounding, row.words, row.scales, row.biases);
  dequantize_row(row.words, row.scales, row.biases, params, row.decoded);
  return row;
}

std::vector<float> ramp() {
  std::vector<float> w(32);
  for (int i = 0; i < 32; ++i) w[static_cast<std::size_t>(i)] = static_cast<float>(i - 11) / 8.0f;
  return w;
}

std::vector<float> negative_ramp() {
  std::vector<float> w(32);
  for (int i = 0; i < 32; ++i) w[static_cast<std::size_t>(i)] = -1.0f - static_cast<float>(i) / 32.0f;
  return w;
}

TEST(Affine, RampOfEveryWidth) {
  using Words = std::vector<std::uint32_t>;
  struct Case {
    int bits;
    float scale;
    Words gpu, cpu;
  };
  const std::vector<Case> cases = {
      {2, -1.25f, {0xaaaabfff, 0x00155556}, {0xaaaaafff, 0x00055556}},
      {3, -0.5f, {0x76dbffff, 0xb6e492db, 0x00925249}, {0x76db7fff, 0x36e4925b, 0x00125249}},
      {4,
       -0.25f,
       {0xcddeefff, 0x899aabbc, 0x45566778, 0x01122334},
       {0xccdeeeff, 0x889aaabc, 0x44566678, 0x00122234}},
      {5,
       -0.125f,
       {0x75be77df, 0x3a56d7c6, 0x35cf8465, 0xc74254b6, 0x00443214},
       {0x75be77df, 0x3a56d7c6, 0x35cf8465, 0xc74254b6, 0x00443214}},
      {6,
       -0.06097561f,
       {0x77e7bfbf, 0xbb6fc73d, 0x863967a6, 0x5765b75f, 0xa30e4125, 0x00210620},
       {0x77e7bfbf, 0xbb6fc73d, 0x863967a6, 0x1765b75f, 0xa30e4125, 0x00210620}},
      {8,
       -0.015151516f,
       {0xe7eff8ff, 0xc6ced7df, 0xa5adb6be, 0x848c959d, 0x636b747c, 0x424a535b, 0x2129323a, 0x00081119},
       {}},
  };
  for (const Case& c : cases) {
    const Row gpu = quantize(ramp(), {c.bits, 32}, Rounding::gpu);
    const Row cpu = quantize(ramp(), {c.bits, 32}, Rounding::cpu);
    EXPECT_EQ(gpu.words, c.gpu) << c.bits;
    if (!c.cpu.empty()) {
      EXPECT_EQ(cpu.words, c.cpu) << c.bits;
    }
    EXPECT_EQ(gpu.scales[0], c.scale) << c.bits;
    EXPECT_EQ(gpu.biases[0], 2.5f);
  }
}

TEST(Affine, NegativeGroupDependsOnTheMode) {
  const Row gpu = quantize(negative_ramp(), {4, 32}, Rounding::gpu);
  const Row cpu = quantize(negative_ramp(), {4, 32}, Rounding::cpu);
  EXPECT_THAT(gpu.words, ElementsAre(0x66667777, 0x44455555, 0x22233334, 0x00011112));
  EXPECT_THAT(cpu.words, ElementsAre(0xbccddeef, 0x8899aaab, 0x44556677, 0x00112233));
  EXPECT_EQ(gpu.scales[0], 0.13125f);
  EXPECT_EQ(cpu.scales[0], 0.065625f);
  EXPECT_EQ(gpu.biases[0], -1.96875f);
  EXPECT_EQ(cpu.biases[0], -1.96875f);
}

TEST(Affine, H1_ZeroAndTinyGroups) {
  for (const Rounding rounding : {Rounding::gpu, Rounding::cpu}) {
    const Row zero = quantize(std::vector<float>(32, 0.0f), {4, 32}, rounding);
    EXPECT_EQ(zero.scales[0], -1e-7f);
    EXPECT_EQ(zero.biases[0], 0.0f);
    EXPECT_THAT(zero.words, ::testing::Each(0u));
    EXPECT_THAT(zero.decoded, ::testing::Each(0.0f));
    for (float largest = 1e-30f; largest < 1e30f; largest *= 9.7f) {
      for (const float sign : {1.0f, -1.0f}) {
        std::vector<float> w(32, 0.0f);
        w[5] = sign * largest;
        const Row row = quantize(w, {4, 32}, rounding);
        EXPECT_TRUE(std::isfinite(row.scales[0]) && row.scales[0] != 0.0f) << largest;
        for (std::size_t i = 0; i < 32; ++i) {
          EXPECT_NEAR(row.decoded[i], w[i], std::max(1e-7f, largest * 0x1p-24f)) << largest;
        }
      }
    }
  }
}

TEST(Affine, H2_ConstantGroups) {
  for (const Rounding rounding : {Rounding::gpu, Rounding::cpu}) {
    for (const float c : {0.5f, 0.7f, -5.0f, 9.0f, -9.0f, 500.0f}) {
      const Row row = quantize(std::vector<float>(64, c), {4, 64}, rounding);
      EXPECT_EQ(row.biases[0], c);
      EXPECT_THAT(row.words, ::testing::Each(0u));
      EXPECT_THAT(row.decoded, ::testing::Each(c));
    }
  }
  EXPECT_EQ(quantize(std::vector<float>(32, 0.5f), {4, 32}, Rounding::gpu).scales[0], -1e-7f);
}

TEST(Affine, H4_OneOutlier) {
  std::vector<float> w(32);
  for (std::size_t i = 0; i < 32; ++i) w[i] = i % 2 == 0 ? 0.01f : -0.01f;
  w[13] = 100.0f;
  const Row row = quantize(w, {4, 32}, Rounding::gpu);
  EXPECT_FLOAT_EQ(row.scales[0], -6.6666667f);
  EXPECT_EQ(row.biases[0], 100.0f);
  const ScaleAndBias stored = {static_cast<float>(bf16(row.scales[0])),
                               static_cast<float>(bf16(row.biases[0]))};
  std::vector<std::uint8_t> codes(32);
  unpack_codes(row.words, 4, codes);
  for (std::size_t i = 0; i < 32; ++i) {
    if (i == 13) {
      EXPECT_EQ(row.decoded[i], 100.0f);
    } else {
      EXPECT_LE(std::fabs(row.decoded[i]), 2.4e-6f);
      EXPECT_FLOAT_EQ(std::fabs(decode(codes[i], stored)), 0.15625f);
    }
  }
}

TEST(Affine, H5_FindsTheFirstNonFiniteWeight) {
  const float inf = std::numeric_limits<float>::infinity();
  const float huge = std::numeric_limits<float>::max();
  for (const float bad : {inf, -inf, std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::size_t at : {0, 31, 32, 37, 63}) {
      std::vector<float> w(64, 0.25f);
      w[at] = w[63] = bad;
      EXPECT_EQ(find_non_finite(w, 32), static_cast<std::int64_t>(at));
    }
  }
  std::vector<float> w(64, 0.25f);
  w[40] = huge;
  w[50] = -huge;
  EXPECT_EQ(find_non_finite(w, 32), 50);
  w[40] = 0.0f;
  w[20] = huge;  // in the other group: each range is finite
  EXPECT_EQ(find_non_finite(w, 32), -1);
  MIXTAPE_EXPECT_ERROR(refuse_weight("lm_head.weight", 7, 37, -inf), ErrorCode::invalid_argument,
                       "lm_head.weight: weight at row 7, column 37 is -inf");
}

TEST(Affine, H14_BitsFromShapes) {
  EXPECT_EQ(bits_from_shapes("w", 640, 64, 64), 5);
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      const AffineParams params = {bits, group};
      EXPECT_EQ(bits_from_shapes("w", params.packed_cols(4096), params.groups(4096), group), bits);
    }
  }
  for (const std::int64_t words : {0, 1, 641, 64 * 64 / 32, 64 * 64 / 32 * 7, 64 * 64 / 32 * 16}) {
    MIXTAPE_EXPECT_ERROR(bits_from_shapes("w", words, 64, 64), ErrorCode::format, "w: ");
  }
  MIXTAPE_EXPECT_ERROR(bits_from_shapes("w", 4, 0, 64), ErrorCode::format, "0 groups");
}

TEST(Affine, H15_ParametersAreChecked) {
  const auto code = ErrorCode::invalid_argument;
  for (const int bits : {-1, 0, 1, 7, 9, 16, 32}) {
    MIXTAPE_EXPECT_ERROR((AffineParams{bits, 64}.check("q")), code, str("q: bits is ", bits));
  }
  for (const int group : {-64, -1, 0, 1, 8, 48, 256}) {
    MIXTAPE_EXPECT_ERROR((AffineParams{4, group}.check("q")), code, str("q: group size is ", group));
  }
  for (const std::int64_t cols : {0, 4, 96, 112, 172, 4304}) {
    MIXTAPE_EXPECT_ERROR((AffineParams{4, 64}.check_cols("w", cols)), code, "expected a multiple of 64");
  }
  for (const std::int64_t cols : {0, 16, 48}) {  // no whole words
    MIXTAPE_EXPECT_ERROR((AffineParams{3, 16}.check_cols("w", cols)), code, "expected a multiple of 32");
  }
  AffineParams{3, 16}.check("q");
  AffineParams{3, 128}.check("q");
  AffineParams{3, 128}.check_cols("q", 256);
}

TEST(Affine, PackingIsABitStream) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    std::vector<std::uint8_t> codes(96);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      codes[i] = static_cast<std::uint8_t>((i * 37 + 11) & ((1u << bits) - 1u));
    }
    std::vector<std::uint32_t> words(3 * static_cast<std::size_t>(bits));
    pack_codes(codes, bits, words);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      for (std::size_t b = 0; b < static_cast<std::size_t>(bits); ++b) {
        const std::size_t at = i * static_cast<std::size_t>(bits) + b;
        EXPECT_EQ((words[at / 32] >> (at % 32)) & 1u, (codes[i] >> b) & 1u) << bits << " " << i;
      }
    }
    std::vector<std::uint8_t> back(codes.size());
    unpack_codes(words, bits, back);
    EXPECT_EQ(back, codes);
  }
}

// tests/data/mlx_affine/make.py describes the file.
class Vectors {
 public:
  Vectors() {
    std::ifstream file("tests/data/mlx_affine/vectors.bin", std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }
  template <class T>
  std::vector<T> take(std::size_t count) {
    std::vector<T> values(count);
    if (at_ + count * sizeof(T) > bytes_.size()) throw std::runtime_error("vectors.bin is too short");
    std::memcpy(values.data(), bytes_.data() + at_, count * sizeof(T));
    at_ += count * sizeof(T);
    return values;
  }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

TEST(Affine, EqualsMlxOnTheCpuBitForBit) {
  Vectors file;
  const auto size = file.take<std::uint32_t>(2);
  const std::size_t rows = size[0], cols = size[1];
  for (const bool is_half : {false, true}) {
    const auto all = file.take<float>(rows * cols);
    for (const int bits : {2, 3, 4, 5, 6, 8}) {
      for (const int group : {32, 64, 128}) {
        const std::size_t words = cols / 32 * static_cast<std::size_t>(bits);
        const std::size_t groups = cols / static_cast<std::size_t>(group);
        const auto mlx_words = file.take<std::uint32_t>(rows * words);
        const auto mlx_scales = file.take<float>(rows * groups);
        const auto mlx_biases = file.take<float>(rows * groups);
        for (std::size_t r = 0; r < rows; ++r) {
          SCOPED_TRACE(::testing::Message() << "bits " << bits << " group " << group << " row " << r);
          Row row = quantize({all.begin() + static_cast<std::ptrdiff_t>(r * cols),
                              all.begin() + static_cast<std::ptrdiff_t>((r + 1) * cols)},
                             {bits, group}, Rounding::cpu);
          for (std::size_t g = 0; is_half && g < groups; ++g) {
            row.scales[g] = static_cast<float>(bf16(row.scales[g]));
            row.biases[g] = static_cast<float>(bf16(row.biases[g]));
          }
          const auto same = [](const auto& ours, const auto& theirs, std::size_t at) {
            return std::memcmp(ours.data(), theirs.data() + at, ours.size() * sizeof(ours[0])) == 0;
          };
          EXPECT_TRUE(same(row.words, mlx_words, r * words));
          EXPECT_TRUE(same(row.scales, mlx_scales, r * groups));
          EXPECT_TRUE(same(row.biases, mlx_biases, r * groups));
        }
      }
    }
  }
  EXPECT_TRUE(file.at_end());
}

}  // namespace
}  // namespace mixtape
