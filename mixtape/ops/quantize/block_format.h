// GGUF's blocks seen as affine codes: neighbouring groups of a row, a block, share an outer scale d and an outer bias e,
// f16 numbers that a whole number multiplies for each group.
//   value = fma(code, scale, bias)
//   scale = d * sub_scale        bias = e * sub_bias, in symmetric types -zero_code * scale
// Every product fits in an f32, so that a value has the bits that GGUF's own rule gives it, but for the sign of 0.
#pragma once

#include <cstdint>

#include "mixtape/ops/quantize/affine.h"

namespace mixtape {

enum class BlockType : std::uint32_t { none, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k };

// The whole numbers of a group; lowest == highest: there is nothing to choose, and nothing is stored.
struct SubGrid {
  std::int32_t lowest = 1, highest = 1;
  bool is_stored() const { return lowest < highest; }
  friend bool operator==(const SubGrid&, const SubGrid&) = default;
};

struct BlockFormat {
  BlockType type;
  const char* name;  // as GGUF spells it: "Q4_K"
  AffineParams affine;
  std::int32_t groups;  // of a block
  SubGrid scales;
  bool has_biases;  // else symmetric
  SubGrid biases;
  std::int32_t zero_code;  // of symmetric types: the code that stands for 0

  std::int64_t block_elements() const { return std::int64_t{groups} * affine.group_size; }
};

// Throws invalid_argument for BlockType::none.
const BlockFormat& block_format(BlockType type);
// By name, in any case of letters; BlockType::none for a name that is none of them.
BlockType block_type_of(const std::string& name);

}  // namespace mixtape
