// How modules are stored whose paths match a pattern.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mixtape/io/tensor_list.h"
#include "mixtape/ops/quantize/block_format.h"

namespace mixtape {

struct ModuleRule {
  std::string pattern;          // of module paths, as core/glob.h has it
  std::int32_t bits = 0;        // 0: float, or blocks
  std::int32_t group_size = 0;  // 0: that of the other modules
  BlockType block = BlockType::none;

  // "*.down_proj=6", "model.layers.0.*=8:32", "lm_head=float", "lm_head=q8_0". Throws invalid_argument, beginning with `where`.
  static ModuleRule parse(const std::string& text, const std::string& where);
};

// The modules that a rule is for, in the order of `tensors`: matrices alone, and routers only where the pattern
// matches no other matrix. A tied model has "lm_head" too. Throws invalid_argument, naming the nearest module, where
// nothing matches; `model` names the model.
std::vector<std::string> matched_modules(const ModuleRule& rule, const std::vector<ModelTensor>& tensors,
                                         bool tied, const std::string& model);

}  // namespace mixtape
