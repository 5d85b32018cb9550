// Rows of several sources in one run: how many of each, and none in training that the report shares text with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mixtape/calib/data.h"

namespace mixtape {

// Rows that share a run of this many tokens are taken for the same text.
inline constexpr std::size_t kSharedTokens = 64;

struct RowSource {
  std::string name;
  std::vector<TokenRow> rows;
  std::optional<double> share = {};  // of the rows of all sources, in any unit; > 0
  bool report_only = false;
};

struct SplitOptions {
  std::int64_t train = 0;  // rows at most; 0: all
  std::int64_t validation = 0;
  std::int64_t report = 0;
  std::uint64_t seed = 0;
};

// What became of one source's rows.
struct SourceCounts {
  std::string name;
  std::int64_t found = 0;
  std::int64_t copies = 0;  // dropped: equal to a row before
  std::int64_t shared = 0;  // dropped: equal to a report row, or with a run of kSharedTokens of its tokens
  std::int64_t train = 0, validation = 0, report = 0;
};

struct SourceSplit {
  CalibrationData data;  // report_groups: one for each source
  std::vector<SourceCounts> sources;
};

// One source is split as split_rows does. Of several, the report and validation rows are taken from each in
// proportion to its rows, at least one each; where any source has a share, the rows left are cut to the largest
// number in which every source has its share (1 where it has none) and none runs out. A report_only source gives
// options.report rows at most, to the report alone; they come last. Rows that share text with the report are dropped;
// what all rows of a source begin with (a template's head) is not text that can be shared.
// Throws invalid_argument for counts below 0 (train, too), a share that isn't above 0, no source to train on, and too few
// rows, naming the source, with the rows found and wanted.
SourceSplit split_sources(std::vector<RowSource> sources, const SplitOptions& options);

}  // namespace mixtape
