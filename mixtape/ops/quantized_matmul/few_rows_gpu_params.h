#pragma once

#include <cstdint>

namespace mixtape {

struct FewRowsParams {
  std::int64_t rows, n, k;
  std::int64_t experts;      // 0: one matrix for all rows
  std::int32_t group_shift;  // log2(group size / kCodesAtOnce)
  std::uint32_t has_addend;
};

// What a block makes of y, and its threads. Rows beyond are further blocks', which find the codes in the caches.
inline constexpr int kRowsAtOnce = 4, kColumnsAtOnce = 4, kFewThreads = 128;

// On matrix units: what a block makes of y, of kMostFewRows rows, and the terms that one of its warps adds at a time.
inline constexpr int kTensorColumns = 16, kTensorWarps = 8, kTermsAtOnce = 128;

// Up to so many rows the codes are read for each kRowsAtOnce of them, or once.
inline constexpr int kMostFewRows = 8;
inline constexpr int kTensorSums = kTensorWarps * kTensorColumns * kMostFewRows;

}  // namespace mixtape
