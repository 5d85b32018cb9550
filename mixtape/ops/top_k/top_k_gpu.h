// Ranking for launchers.
#pragma once

#include "mixtape/backend/gpu/launcher.h"

namespace mixtape::gpu {

// Columns that each lane of a warp holds so that the warp holds a row; 0 where a block must select: more than
// 512 columns or k above 32.
int held_columns(std::int64_t cols, std::int64_t k);

// The k largest of every row of x, in top_k's order, by a block per row. `values` may be null.
void select_rows(const Call& call, const Buffer& x, std::int64_t k, const Argument& values,
                 const Argument& indices);

}  // namespace mixtape::gpu
