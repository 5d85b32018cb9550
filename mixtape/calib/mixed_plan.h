// Plans whose modules differ in bits and groups, or in GGUF's types, of a given size.
#pragma once

#include <vector>

#include "mixtape/calib/allocation.h"
#include "mixtape/calib/sensitivity.h"

namespace mixtape {

// Options of a plan whose modules are to be chosen among affine formats, or with `in_blocks` among GGUF's types: every
// matrix whose input size some group or block divides is quantized by default, routers are not.
QuantizationOptions open_options(bool in_blocks = false);

// Sizes that plan_within can make of such a plan, in bytes as storage_size counts them; gguf_tensor_bytes for blocks.
SizeRange possible_sizes(const ModelSource& source, const QuantizationPlan& plan, DType storage);

// Gives each module of `losses` the format that makes the sum of their KLs least, the whole model taking `bytes` at most,
// as possible_sizes counts; everything else stays as `plan` has it. The plan's default is the format that most weights
// have. Throws invalid_argument for a size that cannot be, saying which can.
QuantizationPlan plan_within(const ModelSource& source, const QuantizationPlan& plan,
                             const std::vector<ModuleLosses>& losses, std::int64_t bytes, DType storage);

}  // namespace mixtape
