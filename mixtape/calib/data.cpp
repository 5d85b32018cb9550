#include "mixtape/calib/data.h"

#include <algorithm>
#include <set>

#include "mixtape/core/counted.h"
#include "mixtape/core/random.h"

namespace mixtape {

std::int64_t drop_copies(std::vector<TokenRow>& rows) {
  std::set<TokenRow> seen;
  return static_cast<std::int64_t>(
      std::erase_if(rows, [&](const TokenRow& row) { return !seen.insert(row).second; }));
}

std::vector<TokenRow> cut_rows(const std::vector<std::uint32_t>& stream,
                               const std::vector<std::uint32_t>& prefix, std::int64_t length) {
  const std::int64_t fresh = length + 1 - static_cast<std::int64_t>(prefix.size());
  require(fresh > 0, "rows: length is ", length, ", expected at least ", prefix.size());
  std::vector<TokenRow> rows;
  const auto step = static_cast<std::size_t>(fresh);
  for (std::size_t begin = 0; begin + step <= stream.size(); begin += step) {
    TokenRow row = prefix;
    row.insert(row.end(), stream.begin() + static_cast<std::ptrdiff_t>(begin),
               stream.begin() + static_cast<std::ptrdiff_t>(begin + step));
    rows.push_back(std::move(row));
  }
  return rows;
}

void check_split(std::int64_t found, std::int64_t validation, std::int64_t report) {
  require(validation >= 0 && report >= 0, "data: validation and report rows are ", validation, " and ",
          report, ", expected 0 or more");
  // Unsigned: two counts and one fit.
  const std::uint64_t wanted =
      static_cast<std::uint64_t>(validation) + static_cast<std::uint64_t>(report) + 1;
  require(static_cast<std::uint64_t>(found) >= wanted, "data: found ", found,
          " different rows of text, expected at least ", wanted, " (", report, " for the report, ",
          validation, " for validation, 1 for training)");
}

CalibrationData split_rows(std::vector<TokenRow> rows, std::int64_t train, std::int64_t validation,
                           std::int64_t report, std::uint64_t seed) {
  require(train >= 0, "data: training rows are ", train, ", expected 0 (all) or more");
  drop_copies(rows);
  const auto found = static_cast<std::int64_t>(rows.size());
  check_split(found, validation, report);
  const std::vector<std::uint64_t> order = permutation(seed, static_cast<std::uint64_t>(found));
  auto take = [&, next = std::size_t{0}](std::int64_t count) mutable {
    std::vector<TokenRow> part;
    for (; count > 0; --count) part.push_back(std::move(rows[order[next++]]));
    return part;
  };
  CalibrationData data;
  data.report = take(report);
  data.validation = take(validation);
  const std::int64_t left = found - report - validation;
  data.train = take(train == 0 ? left : std::min(train, left));
  return data;
}

std::int64_t count_positions(std::span<const TokenRow> rows) {
  std::int64_t count = 0;
  for (const TokenRow& row : rows)
    count += std::max<std::int64_t>(0, static_cast<std::int64_t>(row.size()) - 1);
  return count;
}

Batch make_batch(const Device& device, std::span<const TokenRow> rows) {
  std::size_t length = 0;
  for (const TokenRow& row : rows) length = std::max(length, row.size());
  require(length > 1, "batch: the longest row has ", counted(length, "token"), ", expected 2 or more");
  const std::size_t columns = length - 1;
  std::vector<std::uint32_t> ids(rows.size() * columns), targets(rows.size() * columns);
  Batch batch;
  batch.weights.resize(rows.size() * columns);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t i = 0; i + 1 < rows[r].size(); ++i) {
      ids[r * columns + i] = rows[r][i];
      targets[r * columns + i] = rows[r][i + 1];
      batch.weights[r * columns + i] = 1.0f;
      batch.total_weight += 1.0;
    }
  }
  const auto b = static_cast<std::int64_t>(rows.size()), s = static_cast<std::int64_t>(columns);
  batch.ids = Buffer::from(device, {b, s}, ids);
  batch.targets = Buffer::from(device, {b * s}, targets);
  return batch;
}

Batch from_position(const Batch& batch, std::int64_t first) {
  if (first == 0) return batch;
  const std::int64_t rows = batch.ids.shape()[0], columns = batch.ids.shape()[1], kept = columns - first;
  require(first > 0 && kept > 0, "batch: first position is ", first, ", expected 0 to ", columns - 1);
  const std::vector<std::uint32_t> all = batch.targets.to_vector<std::uint32_t>();
  std::vector<std::uint32_t> targets;
  Batch part;
  part.ids = batch.ids;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = r * columns + first; i < (r + 1) * columns; ++i) {
      targets.push_back(all[static_cast<std::size_t>(i)]);
      part.weights.push_back(batch.weights[static_cast<std::size_t>(i)]);
      part.total_weight += static_cast<double>(part.weights.back());
    }
  }
  part.targets = Buffer::from(batch.targets.device(), {rows * kept}, targets);
  return part;
}

void check_ids(std::span<const TokenRow> rows, std::int64_t vocab_size) {
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t i = 0; i < rows[r].size(); ++i) {
      if (static_cast<std::int64_t>(rows[r][i]) >= vocab_size) {
        fail(ErrorCode::index_out_of_range, "data: row ", r, ", position ", i, " is token ", rows[r][i],
             ", expected an id below the model's ", vocab_size);
      }
    }
  }
}

}  // namespace mixtape
