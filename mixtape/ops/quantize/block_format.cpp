#include "mixtape/ops/quantize/block_format.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

constexpr SubGrid kNone{}, kFourBits{0, 15}, kSixBits{0, 63}, kSignedSixBits{-32, 31},
    kSignedEightBits{-128, 127};

constexpr std::array kFormats = {
    BlockFormat{BlockType::q4_0, "Q4_0", {4, 32}, 1, kNone, false, kNone, 8},
    BlockFormat{BlockType::q4_1, "Q4_1", {4, 32}, 1, kNone, true, kNone, 0},
    BlockFormat{BlockType::q5_0, "Q5_0", {5, 32}, 1, kNone, false, kNone, 16},
    BlockFormat{BlockType::q5_1, "Q5_1", {5, 32}, 1, kNone, true, kNone, 0},
    BlockFormat{BlockType::q8_0, "Q8_0", {8, 32}, 1, kNone, false, kNone, 128},
    BlockFormat{BlockType::q2_k, "Q2_K", {2, 16}, 16, kFourBits, true, kFourBits, 0},
    BlockFormat{BlockType::q3_k, "Q3_K", {3, 16}, 16, kSignedSixBits, false, kNone, 4},
    BlockFormat{BlockType::q4_k, "Q4_K", {4, 32}, 8, kSixBits, true, kSixBits, 0},
    BlockFormat{BlockType::q5_k, "Q5_K", {5, 32}, 8, kSixBits, true, kSixBits, 0},
    BlockFormat{BlockType::q6_k, "Q6_K", {6, 16}, 16, kSignedEightBits, false, kNone, 32},
};

bool same_letters(const std::string& a, const std::string& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::toupper(x) == std::toupper(y); });
}

}  // namespace

const BlockFormat& block_format(BlockType type) {
  const auto* found =
      std::find_if(kFormats.begin(), kFormats.end(), [&](const BlockFormat& f) { return f.type == type; });
  require(found != kFormats.end(), "block format: type is ", static_cast<std::uint32_t>(type),
          ", expected one of GGUF's");
  return *found;
}

BlockType block_type_of(const std::string& name) {
  const auto* found = std::find_if(kFormats.begin(), kFormats.end(),
                                   [&](const BlockFormat& f) { return same_letters(f.name, name); });
  return found == kFormats.end() ? BlockType::none : found->type;
}

}  // namespace mixtape
