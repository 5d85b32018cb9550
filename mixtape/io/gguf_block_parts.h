// GGUF's quantized blocks taken apart: which bits of a block hold what.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "mixtape/core/f16.h"
#include "mixtape/io/gguf_blocks.h"

namespace mixtape {

// What a block of up to 256 values holds; a type leaves unused what it hasn't.
//   value = scale * sub_scale * code + bias * sub_bias
// In symmetric types a code is counted from the lowest one: 8, 16, 4, 32 or 128 stands for 0.
struct GgufBlock {
  f16 scale, bias;  // bias: the negative of the minimum that types "K" subtract
  std::array<std::int32_t, 16> sub_scales{}, sub_biases{};
  std::array<std::uint8_t, 256> codes{};
};

// `bytes` is one block of a quantized type, Q4_0 to Q6_K; throws invalid_argument for another type or size.
GgufBlock unpack_gguf_block(GgufType type, std::span<const std::byte> bytes);
// The inverse, bit for bit: takes numbers that the type's fields hold.
void pack_gguf_block(GgufType type, const GgufBlock& block, std::span<std::byte> bytes);

}  // namespace mixtape
