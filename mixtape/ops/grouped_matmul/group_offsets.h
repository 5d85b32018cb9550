// Where each expert's rows begin, for host kernels of grouped products.
#pragma once

#include <cstdint>
#include <vector>

#include "mixtape/runtime/kernel_registry.h"

namespace mixtape::cpu {

// offsets[0..E] as read from `offsets`; empty, after a report of the first bad one, unless they begin with 0,
// never fall and end with `rows`.
std::vector<std::int64_t> group_offsets(const HostCall& call, const Buffer& offsets, std::int64_t rows);

}  // namespace mixtape::cpu
