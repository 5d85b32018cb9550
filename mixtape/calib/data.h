// Token rows for calibration, validation and report, and batches of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mixtape/runtime/buffer.h"

namespace mixtape {

// One sequence. Position i predicts token i+1, so a row of n tokens has n-1 positions.
using TokenRow = std::vector<std::uint32_t>;

// Cuts a stream into rows of length+1 tokens, each begun by `prefix` tokens (BOS, or none); a last incomplete
// row is dropped. No token of the stream is in two rows.
std::vector<TokenRow> cut_rows(const std::vector<std::uint32_t>& stream,
                               const std::vector<std::uint32_t>& prefix, std::int64_t length);

// Keeps the first of equal rows; returns how many were dropped.
std::int64_t drop_copies(std::vector<TokenRow>& rows);

// Neighbouring rows of the report that belong together: those of one source.
struct RowGroup {
  std::string name;
  std::size_t rows = 0;
};

struct CalibrationData {
  std::vector<TokenRow> train, validation, report;
  std::vector<RowGroup> report_groups = {};  // in order; empty: the rows are all of one kind
};

// Drops rows that were there before, so that no row is in two parts, and shuffles by seed; then takes
// `report` rows, `validation` rows, and of the rest at most `train` (0: all). Throws invalid_argument if no
// row would be left for training, with the rows found and wanted.
CalibrationData split_rows(std::vector<TokenRow> rows, std::int64_t train, std::int64_t validation,
                           std::int64_t report, std::uint64_t seed);

// Throws as split_rows does for `found` different rows, and for negative counts.
void check_split(std::int64_t found, std::int64_t validation, std::int64_t report);

std::int64_t count_positions(std::span<const TokenRow> rows);

struct Batch {
  Buffer ids;                  // u32 [B, S], padded with 0
  Buffer targets;              // u32 [B*S]
  std::vector<float> weights;  // [B*S]: 1 where the position has a target, 0 in the padding
  double total_weight = 0.0;
};

// Rows padded to the longest one.
Batch make_batch(const Device& device, std::span<const TokenRow> rows);

// What of a batch lies at position `first` of a row or later; ids stay whole. Throws invalid_argument unless first
// lies in the rows.
Batch from_position(const Batch& batch, std::int64_t first);

// Throws index_out_of_range naming row, position and id if one is not below vocab_size.
void check_ids(std::span<const TokenRow> rows, std::int64_t vocab_size);

}  // namespace mixtape
