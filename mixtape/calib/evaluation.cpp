#include "mixtape/calib/evaluation.h"

#include <algorithm>
#include <cmath>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

double sum(const std::vector<float>& values) {
  double total = 0.0;
  for (const float v : values) total += static_cast<double>(v);
  return total;
}

// Mean of n values value(i).
template <class Value>
Estimate mean_over(std::size_t n, const Value& value) {
  if (n == 0) return {};
  const auto count = static_cast<double>(n);
  double total = 0.0, squares = 0.0;
  for (std::size_t i = 0; i < n; ++i) total += value(i);
  const double mean = total / count;
  if (n < 2) return {mean, 0.0};
  for (std::size_t i = 0; i < n; ++i) squares += (value(i) - mean) * (value(i) - mean);
  return {mean, std::sqrt(squares / (count - 1.0) / count)};
}

}  // namespace

Estimate mean_of(std::span<const float> values) {
  return mean_over(values.size(), [&](std::size_t i) { return static_cast<double>(values[i]); });
}

Estimate mean_difference(std::span<const float> a, std::span<const float> b) {
  require(a.size() == b.size(), "mean_difference: found ", a.size(), " and ", b.size(),
          " values, expected as many of both");
  return mean_over(a.size(),
                   [&](std::size_t i) { return static_cast<double>(b[i]) - static_cast<double>(a[i]); });
}

namespace {

// exp of an estimated mean; its error to first order.
Estimate exp_of(Estimate e) { return {std::exp(e.value), std::exp(e.value) * e.error}; }

KlStatistics statistics_of(const std::vector<float>& kl) {
  KlStatistics s;
  if (kl.empty()) return s;
  const Estimate mean = mean_of(kl);
  s.mean = mean.value;
  s.mean_error = mean.error;
  std::vector<float> sorted = kl;
  std::sort(sorted.begin(), sorted.end());
  const auto at = [&](double share) {
    return static_cast<double>(
        sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))]);
  };
  s.p1 = at(0.01);
  s.p5 = at(0.05);
  s.median = at(0.5);
  s.p95 = at(0.95);
  s.p99 = at(0.99);
  s.p999 = at(0.999);
  s.max = at(1.0);
  return s;
}

double correlation(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.empty()) return 0.0;
  const auto n = static_cast<double>(a.size());
  const double mean_a = sum(a) / n, mean_b = sum(b) / n;
  double aa = 0.0, bb = 0.0, ab = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]) - mean_a, y = static_cast<double>(b[i]) - mean_b;
    aa += x * x;
    bb += y * y;
    ab += x * y;
  }
  return aa > 0.0 && bb > 0.0 ? ab / std::sqrt(aa * bb) : 0.0;
}

void compare_with_teacher(Evaluation& e) {
  const PositionFigures& f = e.by_position;
  const std::size_t n = f.nll.size();
  const auto difference = [&](std::size_t i) {
    return static_cast<double>(f.nll[i]) - static_cast<double>(f.teacher_nll[i]);
  };
  const auto change = [&](std::size_t i) {
    return std::exp(-static_cast<double>(f.nll[i])) - std::exp(-static_cast<double>(f.teacher_nll[i]));
  };
  e.kl = statistics_of(f.kl);
  const Estimate agreement = mean_over(n, [&](std::size_t i) { return static_cast<double>(f.same_top1[i]); });
  e.top1_agreement = agreement.value;
  e.top1_error = agreement.error;
  const Estimate teacher = exp_of(mean_of(f.teacher_nll));
  e.teacher_perplexity = teacher.value;
  e.teacher_perplexity_error = teacher.error;
  e.perplexity_ratio = exp_of(mean_over(n, difference));
  e.nll_correlation = correlation(f.nll, f.teacher_nll);
  e.mean_change = mean_over(n, change);
  const Estimate square = mean_over(n, [&](std::size_t i) { return change(i) * change(i); });
  e.rms_change.value = std::sqrt(square.value);
  if (square.value > 0.0) e.rms_change.error = square.error / (2.0 * e.rms_change.value);
}

void require_same_positions(const char* what, const Evaluation& a, const Evaluation& b) {
  const std::size_t found = a.by_position.kl.size(), other = b.by_position.kl.size();
  require(a.kl && b.kl && found == other, what, ": found ", found, " and ", other,
          " positions with a KL, expected the same rows");
}

template <class T>
std::vector<T> part_of(const std::vector<T>& values, std::size_t begin, std::size_t end) {
  if (values.empty()) return {};
  return {values.begin() + static_cast<std::ptrdiff_t>(begin),
          values.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace

Evaluation summarize(PositionFigures figures) {
  Evaluation e;
  e.by_position = std::move(figures);
  const PositionFigures& f = e.by_position;
  e.positions = static_cast<std::int64_t>(f.nll.size());
  const Estimate nll = mean_of(f.nll), perplexity = exp_of(nll);
  e.mean_nll = nll.value;
  e.mean_nll_error = nll.error;
  e.perplexity = perplexity.value;
  e.perplexity_error = perplexity.error;
  if (!f.kl.empty()) compare_with_teacher(e);
  return e;
}

Evaluation of_rows(const Evaluation& evaluation, std::size_t begin, std::size_t end) {
  const PositionFigures& f = evaluation.by_position;
  require(begin <= end && end <= f.row_ends.size(), "of_rows: rows are ", begin, " to ", end,
          ", expected 0 to ", f.row_ends.size());
  const auto ends_at = [&](std::size_t row) { return row == 0 ? 0 : f.row_ends[row - 1]; };
  const std::size_t first = ends_at(begin), last = ends_at(end);
  PositionFigures part = {part_of(f.nll, first, last), part_of(f.teacher_nll, first, last),
                          part_of(f.kl, first, last), part_of(f.same_top1, first, last),
                          part_of(f.row_ends, begin, end)};
  for (std::size_t& row_end : part.row_ends) row_end -= first;
  return summarize(std::move(part));
}

// With r the share and d = (1-r) a - b the residual of each pair, whose mean is 0: error of mean d / mean a.
KlCut kl_cut(const Evaluation& before, const Evaluation& after) {
  require_same_positions("kl_cut", before, after);
  if (before.kl->mean <= 0.0) return {};
  const std::vector<float>&a = before.by_position.kl, &b = after.by_position.kl;
  const double left = after.kl->mean / before.kl->mean;
  const Estimate residual = mean_over(
      a.size(), [&](std::size_t i) { return left * static_cast<double>(a[i]) - static_cast<double>(b[i]); });
  return {1.0 - left, residual.error / before.kl->mean};
}

Estimate kl_difference(const Evaluation& a, const Evaluation& b) {
  require_same_positions("kl_difference", a, b);
  return mean_difference(a.by_position.kl, b.by_position.kl);
}

}  // namespace mixtape
