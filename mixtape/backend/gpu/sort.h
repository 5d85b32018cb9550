// A stable sort of numbers below a limit, on the device: what embedding and expert layers group rows with.
#pragma once

#include "mixtape/backend/gpu/launcher.h"

namespace mixtape::gpu {

struct SortedKeys {
  std::shared_ptr<Memory> keys;    // u32, rising; those out of range are `limit`, and so come last
  std::shared_ptr<Memory> places;  // u32: places[i] is where keys[i] stood
};

// `keys` holds u32 or i32, fewer than 2^32. One outside 0 .. limit-1, limit < 2^32, is reported.
// begins[k] (u32) becomes how many of the keys are below k, for k = 0 .. limit. Two or three launches per 9 bits of
// `limit`, and one for begins if there are several; deterministic.
SortedKeys sort_keys(const Call& call, const Argument& keys, std::int64_t count, std::int64_t limit,
                     bool keys_are_signed, const Argument& begins);

}  // namespace mixtape::gpu
