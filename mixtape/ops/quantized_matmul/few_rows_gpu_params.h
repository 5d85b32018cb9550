#pragma once

#include <cstdint>

namespace mixtape {

struct FewRowsParams {
  std::int64_t rows, n, k;
  std::int32_t group_shift;  // log2(group size / kCodesAtOnce)
  std::uint32_t has_addend;
};

// What a block makes of y, and its threads. Rows beyond are further blocks', which find the codes in the caches.
inline constexpr int kRowsAtOnce = 4, kColumnsAtOnce = 4, kFewThreads = 128;

// Up to so many rows the codes are read for each kRowsAtOnce of them.
inline constexpr int kMostFewRows = 8;

}  // namespace mixtape
