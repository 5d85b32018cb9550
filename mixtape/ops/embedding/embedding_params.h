#pragma once

#include <cstdint>

namespace mixtape {

// Occurrences of one id that are summed in a row. n of them form a chain of 128 + n/128 additions: shorter
// than with 64 from 8192 occurrences on, half as many block sums to keep, and up to 128 the plain serial sum.
inline constexpr std::int64_t kSegmentBlock = 128;

// Neighbouring rows that a warp of a GPU writes of a gradient table, fewer than it has lanes.
inline constexpr int kTableRows = 16;

struct EmbeddingParams {
  std::int64_t rows;    // of the table
  std::int64_t hidden;  // elements of a row
  std::int64_t count;   // of ids
  std::uint32_t ids_are_signed;
  std::uint32_t accumulate;
};

// The element where a table's row begins: 64-bit, since large tables pass 2^31 elements.
constexpr std::int64_t row_offset(std::int64_t row, std::int64_t hidden) { return row * hidden; }

// Ids are u32 or i32; both fit into 64 bits.
inline std::int64_t id_at(const std::uint32_t* ids, bool is_signed, std::int64_t i) {
  return is_signed ? static_cast<std::int64_t>(static_cast<std::int32_t>(ids[i])) : std::int64_t{ids[i]};
}

}  // namespace mixtape
