#include "mixtape/calib/reference_recipe.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "mixtape/calib/numpy_random.h"

namespace mixtape {

CalibrationData reference_split(std::vector<TokenRow> rows, std::int64_t train, std::int64_t validation,
                                std::int64_t report, std::uint64_t seed) {
  const auto found = static_cast<std::int64_t>(rows.size());
  check_split(found, validation, report);
  const std::int64_t left = found - validation - report;
  NumpyRandom random(static_cast<std::uint32_t>(seed));
  const std::vector<std::uint32_t> order = random.permutation(static_cast<std::uint32_t>(found));
  const std::int64_t training = train == 0 ? left : std::min(train, left);
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    std::vector<TokenRow> taken;
    for (std::int64_t i = begin; i < end; ++i) taken.push_back(rows[order[static_cast<std::size_t>(i)]]);
    return taken;
  };
  CalibrationData data{part(0, training), part(training, training + validation), part(found - report, found)};
  std::set<TokenRow> used(data.train.begin(), data.train.end());
  used.insert(data.validation.begin(), data.validation.end());
  std::erase_if(data.report, [&](const TokenRow& row) { return used.contains(row); });
  require(!data.report.empty(), "data: every report row is a copy of a training row");
  return data;
}

BatchOrder reference_batches(std::span<const TokenRow> rows, std::int64_t batch_size, std::uint64_t seed) {
  std::vector<std::size_t> by_length(rows.size());
  std::iota(by_length.begin(), by_length.end(), std::size_t{0});
  std::stable_sort(by_length.begin(), by_length.end(),
                   [&](std::size_t a, std::size_t b) { return rows[a].size() < rows[b].size(); });
  const auto size = static_cast<std::size_t>(batch_size);
  return [by_length, size, seed](std::int64_t) {
    NumpyRandom random(static_cast<std::uint32_t>(seed));
    std::vector<std::vector<std::size_t>> batches;
    for (const std::uint32_t b : random.permutation(static_cast<std::uint32_t>(by_length.size() / size))) {
      const auto first = by_length.begin() + static_cast<std::ptrdiff_t>(b * size);
      batches.emplace_back(first, first + static_cast<std::ptrdiff_t>(size));
    }
    return batches;
  };
}

void apply_reference_settings(TrainOptions& train) {
  train.learning_rate = 1e-6;
  train.relative_rate = false;
  train.constant_rate = true;
  train.batch_size = 4;
  train.validate_every = 200;
  train.keep_best = false;
  train.trainable = Trainable::everything;
}

}  // namespace mixtape
