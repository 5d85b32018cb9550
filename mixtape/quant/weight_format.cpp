#include "mixtape/quant/weight_format.h"

#include "mixtape/core/error.h"

namespace mixtape {

void WeightFormat::check(const std::string& where) const {
  require(is_blocks() || group_size == 32 || group_size == 64 || group_size == 128, where, ": group size is ",
          group_size, ", expected 32, 64 or 128");
  AffineParams::check(where);
}

std::string WeightFormat::name() const {
  return is_blocks() ? block_format(block).name : str(bits, " bits, group ", group_size);
}

WeightFormat format_of(const QuantizedWeight& weight) {
  return weight.blocks.type == BlockType::none ? WeightFormat(weight.format)
                                               : WeightFormat(weight.blocks.type);
}

}  // namespace mixtape
