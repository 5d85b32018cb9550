// The kernels for matrix units, on the simulator: they are part of this program only.
#include "mixtape/ops/gated_delta_rule/gated_delta_rule_check.h"
#include "mixtape/testing/check_op.h"
// After the library's names, of which the kernels' language has some too.
#include "mixtape/ops/gated_delta_rule/gated_delta_rule_backward_cuda.cu"
#include "mixtape/ops/gated_delta_rule/gated_delta_rule_cuda.cu"

namespace mixtape {
namespace {

using oracle::DeltaCase;

void check(const DeltaCase& c, bool initial) {
  check_op(Device::open("sim"), gated_delta_rule_check(DType::bf16, c, initial), 2);
}

// One chunk that is not full, dims that fill no tile.
TEST(GatedDeltaRuleTensor, PartOfAChunk) {
  check({.length = 9, .key_heads = 1, .value_heads = 1, .key_dim = 8, .value_dim = 8, .scale = 0.4}, false);
}

// Several chunks, slices of values, value heads that share a key head, and a state to begin with.
TEST(GatedDeltaRuleTensor, ChunksSlicesAndGroups) {
  check({.length = 66, .key_heads = 1, .value_heads = 2, .key_dim = 24, .value_dim = 40, .scale = 0.2}, true);
}

}  // namespace
}  // namespace mixtape
