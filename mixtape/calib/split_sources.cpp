#include "mixtape/calib/split_sources.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <unordered_set>

#include "mixtape/core/random.h"

namespace mixtape {
namespace {

using Counts = std::vector<std::int64_t>;

std::int64_t total(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// The rows of the report: whether another row has text in common with one of them.
class ReportText {
 public:
  // Of one source; a run within what all of `source` begin with doesn't count.
  void add(std::span<const TokenRow> rows, std::size_t head) {
    rows_.insert(rows.begin(), rows.end());
    for (const TokenRow& row : rows) {
      for_each_run(row, head, [&](std::uint64_t hash) {
        runs_.insert(hash);
        return true;
      });
    }
  }

  bool shares_with(const TokenRow& row) const {
    if (rows_.contains(row)) return true;
    return !for_each_run(row, 0, [&](std::uint64_t hash) { return !runs_.contains(hash); });
  }

 private:
  // fn(hash of kSharedTokens tokens) for each place from `begin` on until fn says no. A polynomial modulo 2^64,
  // rolled on token by token: two runs in 2^64 collide, and would cost a row.
  template <class Fn>
  static bool for_each_run(const TokenRow& row, std::size_t begin, const Fn& fn) {
    constexpr std::uint64_t kBase = 0x9e3779b97f4a7c15u;
    std::uint64_t leading = 1, hash = 0;  // leading: what the oldest token of a run is multiplied by
    for (std::size_t i = 1; i < kSharedTokens; ++i) leading *= kBase;
    for (std::size_t i = begin; i < row.size(); ++i) {
      if (i >= begin + kSharedTokens) hash -= leading * (row[i - kSharedTokens] + 1);
      hash = hash * kBase + row[i] + 1;
      if (i + 1 >= begin + kSharedTokens && !fn(hash)) return false;
    }
    return true;
  }

  std::unordered_set<std::uint64_t> runs_;
  std::set<TokenRow> rows_;
};

// Tokens that all rows begin with.
std::size_t common_head(std::span<const TokenRow> rows) {
  if (rows.size() < 2) return 0;
  std::size_t head = rows[0].size();
  for (const TokenRow& row : rows) {
    const auto end = rows[0].begin() + static_cast<std::ptrdiff_t>(std::min(head, row.size()));
    head = static_cast<std::size_t>(std::mismatch(rows[0].begin(), end, row.begin()).first - rows[0].begin());
  }
  return head;
}

// `count` in proportion to the weights, by largest remainders, and at least one each; none where all are 0.
Counts apportion(std::int64_t count, const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (count == 0 || sum == 0.0) return Counts(weights.size(), 0);
  Counts parts;
  std::vector<std::pair<double, std::size_t>> rest;  // what the rounding took, as a negative: sorted first
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double exact = static_cast<double>(count) * weights[i] / sum;
    parts.push_back(static_cast<std::int64_t>(exact));
    rest.emplace_back(std::floor(exact) - exact, i);
  }
  std::sort(rest.begin(), rest.end());
  const std::int64_t left = count - total(parts);
  for (std::int64_t i = 0; i < left; ++i) ++parts[rest[static_cast<std::size_t>(i)].second];
  for (std::int64_t& part : parts) part = std::max<std::int64_t>(part, 1);
  while (total(parts) > count) {
    const auto most = std::max_element(parts.begin(), parts.end());
    if (*most == 1) break;
    --*most;
  }
  return parts;
}

std::vector<double> as_weights(const Counts& counts) { return {counts.begin(), counts.end()}; }

// One source on its way into the parts.
struct Pool {
  Pool(RowSource source, std::uint64_t seed) : share(source.share), is_report_only(source.report_only) {
    counts.name = std::move(source.name);
    counts.found = static_cast<std::int64_t>(source.rows.size());
    counts.copies = drop_copies(source.rows);
    head = common_head(source.rows);
    for (const std::uint64_t i : permutation(seed, source.rows.size()))
      rows.push_back(std::move(source.rows[i]));
  }

  void drop_shared(const ReportText& report) {
    counts.shared += static_cast<std::int64_t>(
        std::erase_if(rows, [&](const TokenRow& row) { return report.shares_with(row); }));
  }

  std::int64_t size() const { return static_cast<std::int64_t>(rows.size()); }

  // Moves the first `count` rows to the end of `part`.
  void take(std::int64_t count, std::vector<TokenRow>& part) {
    const auto end = rows.begin() + count;
    part.insert(part.end(), std::make_move_iterator(rows.begin()), std::make_move_iterator(end));
    rows.erase(rows.begin(), end);
  }

  SourceCounts counts;
  std::vector<TokenRow> rows;  // different ones, shuffled
  std::size_t head = 0;
  std::optional<double> share;
  bool is_report_only;
};

// Rows of each source: all that are left, or as many as give each its share.
Counts used_rows(const std::vector<Pool*>& pools) {
  const bool has_shares =
      std::any_of(pools.begin(), pools.end(), [](const Pool* p) { return p->share.has_value(); });
  double most = INFINITY;  // rows per unit of share
  for (const Pool* p : pools) most = std::min(most, static_cast<double>(p->size()) / p->share.value_or(1.0));
  Counts used;
  for (const Pool* p : pools) {
    // What is a whole number but for rounding stays one.
    const double part = most * p->share.value_or(1.0) * (1.0 + 1e-12);
    used.push_back(has_shares ? std::min(p->size(), static_cast<std::int64_t>(part)) : p->size());
  }
  return used;
}

class Split {
 public:
  Split(std::vector<RowSource> sources, const SplitOptions& options) : o_(options) {
    require(o_.train >= 0, "data: training rows are ", o_.train, ", expected 0 (all) or more");
    for (RowSource& source : sources) {
      require(!source.share || (*source.share > 0.0 && std::isfinite(*source.share)), "data: the share of '",
              source.name, "' is ", source.share.value_or(0.0), ", expected a number above 0");
      pools_.emplace_back(std::move(source), o_.seed);
    }
    for (Pool& pool : pools_) (pool.is_report_only ? extra_ : pools_in_use_).push_back(&pool);
    require(!pools_in_use_.empty(), "data: found no source to train on, expected one or more");
    for (std::size_t i = 1; i < pools_in_use_.size(); ++i) drop_copies_before(i);
  }

  SourceSplit run() {
    std::int64_t found = 0;
    for (const Pool* p : pools_in_use_) found += p->size();
    check_split(found, o_.validation, o_.report);
    for (const Pool* p : extra_) text_.add(p->rows, p->head);
    drop_shared();
    take_report();
    drop_shared();
    take_the_rest();
    for (Pool* p : extra_) take_extra(*p);
    for (Pool& p : pools_) result_.sources.push_back(std::move(p.counts));
    return std::move(result_);
  }

 private:
  // Of rows that several sources have the first source keeps theirs.
  void drop_copies_before(std::size_t index) {
    std::set<TokenRow> seen;
    for (std::size_t i = 0; i < index; ++i)
      seen.insert(pools_in_use_[i]->rows.begin(), pools_in_use_[i]->rows.end());
    Pool& pool = *pools_in_use_[index];
    pool.counts.copies += static_cast<std::int64_t>(
        std::erase_if(pool.rows, [&](const TokenRow& row) { return seen.contains(row); }));
  }

  void drop_shared() {
    for (Pool* p : pools_in_use_) p->drop_shared(text_);
  }

  void require_rows(const Pool& pool, std::int64_t wanted, const char* parts) const {
    const SourceCounts& c = pool.counts;
    const std::string dropped =
        c.copies + c.shared == 0
            ? ""
            : str(" (copies: ", c.copies, ", rows that share text with the report: ", c.shared, ")");
    require(pool.size() >= wanted, "data: found ", pool.size(), " different rows in '", c.name, "'", dropped,
            ", expected at least ", wanted, " for ", parts);
  }

  void take_report() {
    const Counts parts = apportion(o_.report, as_weights(used_rows(pools_in_use_)));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Pool& pool = *pools_in_use_[i];
      require_rows(pool, parts[i] + (o_.validation > 0) + 1, "report, validation and training");
      pool.counts.report = parts[i];
      std::vector<TokenRow> rows;
      pool.take(parts[i], rows);
      text_.add(rows, pool.head);
      add_report(pool, std::move(rows));
    }
  }

  void take_the_rest() {
    const Counts used = used_rows(pools_in_use_);
    const Counts validation = apportion(o_.validation, as_weights(used));
    Counts train;
    for (std::size_t i = 0; i < used.size(); ++i) {
      require_rows(*pools_in_use_[i], validation[i] + 1, "validation and training");
      train.push_back(std::max<std::int64_t>(1, used[i] - validation[i]));
    }
    if (o_.train > 0 && o_.train < total(train)) {
      const Counts parts = apportion(o_.train, as_weights(train));
      for (std::size_t i = 0; i < train.size(); ++i) train[i] = std::min(train[i], parts[i]);
    }
    std::vector<TokenRow> rows;
    for (std::size_t i = 0; i < used.size(); ++i) {
      Pool& pool = *pools_in_use_[i];
      pool.counts.validation = validation[i];
      pool.counts.train = train[i];
      pool.take(validation[i], result_.data.validation);
      pool.take(train[i], rows);
    }
    shuffle_into_train(std::move(rows));
  }

  // Whatever takes the first training rows gets some of every source.
  void shuffle_into_train(std::vector<TokenRow> rows) {
    if (pools_in_use_.size() == 1) {
      result_.data.train = std::move(rows);
      return;
    }
    for (const std::uint64_t i : permutation(o_.seed, rows.size()))
      result_.data.train.push_back(std::move(rows[i]));
  }

  void take_extra(Pool& pool) {
    require_rows(pool, 1, "the report");
    pool.counts.report = std::min(pool.size(), std::max<std::int64_t>(o_.report, 1));
    std::vector<TokenRow> rows;
    pool.take(pool.counts.report, rows);
    add_report(pool, std::move(rows));
  }

  void add_report(const Pool& pool, std::vector<TokenRow> rows) {
    if (rows.empty()) return;
    result_.data.report_groups.push_back({pool.counts.name, rows.size()});
    for (TokenRow& row : rows) result_.data.report.push_back(std::move(row));
  }

  SplitOptions o_;
  std::vector<Pool> pools_;
  std::vector<Pool*> pools_in_use_, extra_;
  ReportText text_;
  SourceSplit result_;
};

}  // namespace

SourceSplit split_sources(std::vector<RowSource> sources, const SplitOptions& options) {
  return Split(std::move(sources), options).run();
}

}  // namespace mixtape
