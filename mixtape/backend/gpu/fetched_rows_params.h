// How many rows of a block of fetched_rows.h are in shared memory at a time.
#pragma once

namespace mixtape {

constexpr int kRowsAhead = 3;

}  // namespace mixtape
