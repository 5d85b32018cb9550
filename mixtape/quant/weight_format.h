// How a weight is stored: as affine codes with a scale and a bias per group, as MLX does, or in GGUF blocks of such
// groups.
#pragma once

#include <string>

#include "mixtape/ops/quantize/quantized_weight.h"

namespace mixtape {

struct WeightFormat : AffineParams {
  BlockType block = BlockType::none;  // none: MLX's

  WeightFormat(AffineParams affine = {}) : AffineParams(affine) {}
  WeightFormat(std::int32_t code_bits, std::int32_t group) : AffineParams{code_bits, group} {}
  WeightFormat(BlockType type) : AffineParams(block_format(type).affine), block(type) {}

  bool is_blocks() const { return block != BlockType::none; }
  // Throws invalid_argument, beginning with `where`, for bits or a group size that no file has.
  void check(const std::string& where) const;
  // Neighbouring weights of a row that are stored together.
  std::int64_t unit() const { return is_blocks() ? block_format(block).block_elements() : group_size; }
  // "4 bits, group 64", "Q4_K".
  std::string name() const;
  friend bool operator==(const WeightFormat& a, const WeightFormat& b) {
    return a.bits == b.bits && a.group_size == b.group_size && a.block == b.block;
  }
  friend bool operator==(const WeightFormat& a, const AffineParams& b) { return a == WeightFormat(b); }
};

// That of a weight.
WeightFormat format_of(const QuantizedWeight& weight);

}  // namespace mixtape
