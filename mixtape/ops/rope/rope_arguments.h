#pragma once

#include "mixtape/ops/rope/rope.h"
#include "mixtape/ops/rope/rope_params.h"

namespace mixtape {

// What a kernel needs to know of a rotation of x; errors name `op` and `argument`, which is x.
RopeParams checked_rope(const char* op, const char* argument, const Buffer& x, const Buffer& positions,
                        const Buffer& inv_freq, RopeOptions options);

}  // namespace mixtape
