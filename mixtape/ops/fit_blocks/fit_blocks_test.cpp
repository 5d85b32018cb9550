#include "mixtape/ops/fit_blocks/fit_blocks.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "mixtape/ops/fit_affine/fit_inputs_check.h"
#include "mixtape/ops/fit_blocks/fit_blocks_check.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/instruction_sets.h"

namespace mixtape {
namespace {

using testing::Doubles;
using testing::HostTensor;

constexpr auto kInvalid = ErrorCode::invalid_argument;

Buffer buffer_of(const Device& device, const HostTensor& t) {
  return t.values.empty() ? Buffer() : testing::upload(device, t);
}

HostTensor f32_tensor(const Shape& shape, const std::function<double(std::size_t)>& value) {
  Doubles values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(i);
  return testing::make_tensor(DType::f32, shape, values);
}

TEST(FitBlocks, MatchesOracle) {
  for (const Device& device : testing::test_devices())
    check_ops(device, fit_blocks_checks(device, DType::f32));
}

using Bytes = std::vector<std::vector<std::byte>>;
Bytes bytes_of(const QuantizedWeight& q) {
  Bytes all;
  for (const Buffer& b :
       {q.codes, q.blocks.scales, q.blocks.biases, q.blocks.sub_scales, q.blocks.sub_biases})
    all.push_back(b ? testing::download_bytes(b) : std::vector<std::byte>());
  return all;
}

// Experts, whose last rows don't fill a vector, in a view that begins at an odd element.
Bytes bytes_of_fit(const Device& device, BlockType type) {
  const HostTensor all = heavy_tailed_tensor({2 * 5 * 512 + 1}, 8);
  const Buffer w = buffer_of(device, all).slice(1, 2 * 5 * 512 + 1).reshape({2, 5, 512});
  return bytes_of(
      fit_in_blocks(w, buffer_of(device, random_importance({2, 512}, 9)), type, BlockFit::search));
}

TEST(FitBlocks, SameBytesOnEveryDevice) {
  for (const Device& device : testing::test_devices()) {
    for (const BlockType type : kBlockTypes)
      EXPECT_EQ(bytes_of_fit(device, type), bytes_of_fit(Device::cpu(), type))
          << device.name() << block_format(type).name;
  }
}

TEST(FitBlocks, EveryInstructionSetGivesTheSameBits) {
  const Bytes biased = bytes_of_fit(Device::cpu(), BlockType::q4_k);
  const Bytes symmetric = bytes_of_fit(Device::cpu(), BlockType::q3_k);
  testing::for_every_instruction_set([&] {
    EXPECT_EQ(bytes_of_fit(Device::cpu(), BlockType::q4_k), biased);
    EXPECT_EQ(bytes_of_fit(Device::cpu(), BlockType::q3_k), symmetric);
  });
}

TEST(FitBlocks, SameBitsForAnyNumberOfThreads) {
  const Device device = Device::cpu();
  const Buffer w = buffer_of(device, testing::random_tensor(DType::f32, {70, 256}, 1));
  testing::expect_same_bits(
      "fit_blocks",
      [&] {
        const QuantizedWeight q = fit_in_blocks(w, {}, BlockType::q4_k, BlockFit::search);
        return std::vector<Buffer>{q.codes, q.blocks.scales, q.blocks.biases, q.blocks.sub_scales,
                                   q.blocks.sub_biases};
      },
      3);
}

struct Weights {
  std::string name;
  HostTensor w, importance;
};

// Blocks that have nothing, little or far too much in them.
std::vector<Weights> degenerate_weights() {
  const HostTensor normal = testing::random_tensor(DType::f32, {3, 256}, 1), none{DType::f32, {0}, {}};
  const HostTensor h = random_importance({256}, 2);
  const auto with = [&](const std::function<double(std::size_t, double)>& change) {
    return f32_tensor({3, 256}, [&](std::size_t i) { return change(i, normal.values[i]); });
  };
  const auto h_with = [&](const std::function<double(std::size_t, double)>& change) {
    return f32_tensor({256}, [&](std::size_t i) { return change(i, h.values[i]); });
  };
  return {
      {"zeros", with([](std::size_t, double) { return 0.0; }), h},
      {"zeros in a group", with([](std::size_t i, double v) { return i % 256 < 64 ? 0.0 : v; }), none},
      {"constant", with([](std::size_t i, double) { return i < 256   ? 0.7
                                                           : i < 512 ? -9.1
                                                                     : 3e-4; }), h},
      {"all but constant", with([](std::size_t, double v) { return 5.0 + 1e-6 * v; }), none},
      {"outlier", with([](std::size_t i, double v) { return i % 256 == 13 ? 100.0 : 0.01 * v; }), none},
      {"outlier of no importance",
       with([](std::size_t i, double v) { return i % 256 == 13 ? 100.0 : 0.01 * v; }),
       h_with([](std::size_t i, double v) { return i == 13 ? 0.0 : v; })},
      {"1e30 of no importance", with([](std::size_t i, double v) { return i % 256 == 5 ? -1e30 : v; }),
       h_with([](std::size_t i, double v) { return i == 5 ? 0.0 : v; })},
      {"groups over 8 decades", with([](std::size_t i, double v) {
         return v * std::pow(10.0, static_cast<double>(i / 32 % 8) - 6.0);
       }),
       none},
      {"1e-30 everywhere", with([](std::size_t, double v) { return 1e-30 * v; }), h},
      {"two values", with([](std::size_t i, double) { return i % 3 == 0 ? 1.5 : -0.25; }), h},
      {"negative", with([](std::size_t, double v) { return -4.0 - v * v; }), h},
      {"positive", with([](std::size_t, double v) { return 4.0 + v * v; }), h},
      {"no importance at all", normal, h_with([](std::size_t, double) { return 0.0; })},
      {"no importance in a group", normal,
       h_with([](std::size_t i, double v) { return i / 32 == 2 ? 0.0 : v; })},
      {"importance of one channel", normal,
       h_with([](std::size_t i, double) { return i == 40 ? 2.0 : 0.0; })},
      {"importance over 60 decades", normal,
       h_with([](std::size_t i, double) { return std::pow(10.0, static_cast<double>(i % 61) - 30.0); })},
      {"tiny importance", normal, h_with([](std::size_t, double v) { return 1e-38 * v; })},
      {"huge importance", normal, h_with([](std::size_t, double v) { return 1e36 * v; })},
  };
}

// Against plain rounding, which is one of the starts.
void expect_no_worse(const Weights& w, BlockType type) {
  const Device device = Device::cpu();
  const Buffer weight = buffer_of(device, w.w), h = buffer_of(device, w.importance);
  const BlockFormat& f = block_format(type);
  Doubles counts = w.importance.values.empty() ? Doubles(256, 1.0) : w.importance.values;
  const auto errors = [&](BlockFit how) {
    const Doubles found = decoded_blocks(fit_in_blocks(weight, h, type, how));
    return block_errors(w.w.values, counts, found, 256, f);
  };
  const Doubles fitted = errors(BlockFit::search);
  // Plain rounding takes no notice of importance: such a weight is beyond f16.
  const bool overflows = w.name.starts_with("1e30");
  const Doubles plain = overflows ? Doubles(fitted.size(), 1e300) : errors(BlockFit::plain);
  for (std::size_t b = 0; b < plain.size(); ++b) {
    const std::size_t size = static_cast<std::size_t>(f.block_elements()), at = b * size % 256;
    double largest = 0.0, total = 0.0;
    for (std::size_t c = 0; c < size; ++c) {
      if (counts[at + c] > 0.0)
        largest = std::max(largest, w.w.values[b * size + c] * w.w.values[b * size + c]);
      total += counts[at + c];
    }
    EXPECT_LE(fitted[b], plain[b] * (1 + 0x1p-16) + 0x1p-43 * total * std::pow(largest, 1.5))
        << w.name << ", " << f.name << ", block " << b;
    EXPECT_TRUE(std::isfinite(fitted[b]));
  }
}

TEST(FitBlocks, NeverWorseThanPlainRounding) {
  for (const BlockType type : kBlockTypes) {
    for (const Weights& w : degenerate_weights()) expect_no_worse(w, type);
    for (std::uint64_t seed = 1; seed < 6; ++seed) {
      expect_no_worse(
          {"normal", testing::random_tensor(DType::f32, {8, 256}, seed, 0.02), {DType::f32, {0}, {}}}, type);
      expect_no_worse({"tails", heavy_tailed_tensor({8, 256}, seed), random_importance({256}, seed)}, type);
    }
  }
}

TEST(FitBlocks, DegenerateBlocksHaveTheSameBytesOnEveryDevice) {
  for (const Device& device : testing::test_devices()) {
    for (const Weights& w : degenerate_weights()) {
      for (const BlockType type : {BlockType::q4_k, BlockType::q6_k, BlockType::q5_1}) {
        const auto fit = [&](const Device& d) {
          return bytes_of(
              fit_in_blocks(buffer_of(d, w.w), buffer_of(d, w.importance), type, BlockFit::search));
        };
        EXPECT_EQ(fit(device), fit(Device::cpu())) << w.name << ", " << block_format(type).name;
      }
    }
  }
}

TEST(FitBlocks, ZerosStayZeros) {
  for (const BlockType type : kBlockTypes) {
    const Buffer w = Device::cpu().alloc(DType::f32, {2, 256});
    for (const BlockFit how : {BlockFit::plain, BlockFit::search})
      EXPECT_THAT(decoded_blocks(fit_in_blocks(w, {}, type, how)), ::testing::Each(0.0));
  }
}

// Weights that a type holds exactly come back as they were.
TEST(FitBlocks, AGridIsFoundExactly) {
  const HostTensor random = testing::random_indices({4, 256}, 3, 1 << 16);
  for (const Device& device : testing::test_devices()) {
    for (const BlockType type : kBlockTypes) {
      const BlockFormat& f = block_format(type);
      const HostTensor w = f32_tensor({4, 256}, [&](std::size_t i) {
        const int codes = 1 << f.affine.bits;
        const std::size_t in_group = i % static_cast<std::size_t>(f.affine.group_size);
        const int code = in_group == 0   ? 0
                         : in_group == 1 ? codes - 1
                                         : static_cast<int>(random.values[i]) % codes;
        const std::size_t group = i / static_cast<std::size_t>(f.affine.group_size);
        const bool is_first = group % static_cast<std::size_t>(f.groups) == 0;  // meets the grid's end
        const double end = f.scales.lowest < 0 ? f.scales.lowest : f.scales.highest;
        const double scale = 0x1p-10 * (is_first ? end : static_cast<double>(1 + group % 3));
        const double bias = f.has_biases ? -0x1p-9 * (is_first ? f.biases.highest : 1) : -f.zero_code * scale;
        return code * scale + bias;
      });
      EXPECT_EQ(decoded_blocks(fit_in_blocks(buffer_of(device, w), {}, type, BlockFit::search)), w.values)
          << f.name;
    }
  }
}

TEST(FitBlocks, H5_WhatIsNotFiniteIsRefused) {
  for (const Device& device : testing::test_devices()) {
    const Buffer h = buffer_of(device, random_importance({256}, 1));
    for (const double bad : {HUGE_VAL, -HUGE_VAL, static_cast<double>(NAN)}) {
      HostTensor w = testing::random_tensor(DType::f32, {40, 256}, 5);
      w.values[23 * 256 + 77] = w.values[23 * 256 + 78] = w.values[35 * 256] = bad;
      MIXTAPE_EXPECT_ERROR(fit_in_blocks(buffer_of(device, w), h, BlockType::q4_k, BlockFit::search),
                           kInvalid, "fit_blocks: weight at row 23, column 77 is");
    }
    HostTensor w = testing::random_tensor(DType::f32, {3, 256}, 5);
    w.values[256 + 33] = 3e38;
    w.values[256 + 35] = -3e38;
    MIXTAPE_EXPECT_ERROR(fit_in_blocks(buffer_of(device, w), h, BlockType::q4_k, BlockFit::search), kInvalid,
                         "row 1, column 35 is");
    w.values[256 + 35] = 0.0;
    MIXTAPE_EXPECT_ERROR(fit_in_blocks(buffer_of(device, w), h, BlockType::q8_0, BlockFit::search), kInvalid,
                         "fit_blocks: scale or bias of the block at row 1, column 32 overflows f16");
  }
}

TEST(FitBlocks, BadImportanceIsRefused) {
  for (const Device& device : testing::test_devices()) {
    HostTensor w = testing::random_tensor(DType::f32, {2, 3, 256}, 5);
    w.values[0] = NAN;  // importance comes first
    for (const double bad : {-0x1p-100, HUGE_VAL, static_cast<double>(NAN)}) {
      HostTensor h = random_importance({2, 256}, 1);
      h.values[256 + 7] = h.values[256 + 9] = bad;
      MIXTAPE_EXPECT_ERROR(
          fit_in_blocks(buffer_of(device, w), buffer_of(device, h), BlockType::q4_k, BlockFit::search),
          kInvalid, str("fit_blocks: importance at position 263 is ", static_cast<float>(bad)));
    }
  }
}

TEST(FitBlocks, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer w = device.alloc(DType::f32, {2, 4, 256}), h = device.alloc(DType::f32, {2, 256});
  QuantizedWeight q = alloc_blocks(device, w.shape(), BlockType::q4_k);
  fit_blocks_forward(encoder, w, h, q);
  MIXTAPE_EXPECT_ERROR(fit_blocks_forward(encoder, device.alloc(DType::f32, {2, 288}), {}, q), kInvalid,
                       "rows have 288 weights, expected a multiple of 256 for Q4_K");
  MIXTAPE_EXPECT_ERROR(fit_blocks_forward(encoder, w, device.alloc(DType::f32, {3, 256}), q), kInvalid,
                       "importance is f32[3,256], expected f32[2,256]");
  MIXTAPE_EXPECT_ERROR(fit_blocks_forward(encoder, device.alloc(DType::bf16, w.shape()), h, q), kInvalid,
                       "w is bf16[2,4,256], expected f32");
  q.blocks.type = BlockType::q6_k;
  MIXTAPE_EXPECT_ERROR(fit_blocks_forward(encoder, w, h, q), kInvalid,
                       "codes is u32[2,4,32], expected u32[2,4,48]");
  q.blocks.type = BlockType::none;
  MIXTAPE_EXPECT_ERROR(fit_blocks_forward(encoder, w, h, q), kInvalid, "has no blocks");
  encoder.commit_and_wait();
}

}  // namespace
}  // namespace mixtape
