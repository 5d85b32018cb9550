// Starting values of a model that is trained from nothing.
#pragma once

#include <cstdint>

#include "mixtape/core/run_hooks.h"
#include "mixtape/nn/parameters.h"

namespace mixtape {

// f32. Matrices are normal with standard deviation 0.02, those that write into the residual stream (o_proj,
// down_proj) divided by sqrt(2 * layers); norms are 1, biases 0. The same for the same seed everywhere. Reports tensors
// as the stage "initializing"; throws interrupted within a million values.
Parameters initial_parameters(const ModelConfig& config, std::uint64_t seed, const Device& device,
                              const RunHooks& hooks = {});

}  // namespace mixtape
