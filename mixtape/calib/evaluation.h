// Figures of a model on given text, alone and against a teacher, made from what was measured at each position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace mixtape {

// By position that has a target, in the order of the rows.
struct PositionFigures {
  std::vector<float> nll;  // negative log-likelihood of the right token, in nats
  // Against a teacher; empty without one.
  std::vector<float> teacher_nll;
  std::vector<float> kl;                // KL(teacher || model), full vocabulary, temperature 1
  std::vector<std::uint8_t> same_top1;  // 1 where both put the same token first
  std::vector<std::size_t> row_ends;    // positions up to the end of each row
};

// A figure and its standard error.
struct Estimate {
  double value = 0.0, error = 0.0;
};

// Of values that are taken as independent; an error of 0 for fewer than two.
Estimate mean_of(std::span<const float> values);
// The same of b minus a, value by value. Throws invalid_argument where they are not as many.
Estimate mean_difference(std::span<const float> a, std::span<const float> b);

// Of n values in ascending order, percentile p is number floor(p/100 * (n-1)) from 0 on.
struct KlStatistics {
  double mean = 0.0, median = 0.0, p95 = 0.0, p99 = 0.0, max = 0.0;
  double mean_error = 0.0;
  double p1 = 0.0, p5 = 0.0, p999 = 0.0;
};

// All errors are standard errors, positions taken as independent; 0 for fewer than two positions.
struct Evaluation {
  std::int64_t positions = 0;
  double mean_nll = 0.0;
  double perplexity = 0.0;
  double mean_nll_error = 0.0;
  double perplexity_error = 0.0;
  // Against the teacher; unset without one.
  std::optional<KlStatistics> kl;
  double top1_agreement = 0.0;  // share of positions where both put the same token first
  double top1_error = 0.0;
  double teacher_perplexity = 0.0;
  double teacher_perplexity_error = 0.0;
  Estimate perplexity_ratio;  // model / teacher; the error is that of the pairs
  double nll_correlation =
      0.0;  // Pearson's, of both models' nll by position; 0 where one of them is constant
  // Of the right token's probability, model minus teacher.
  Estimate mean_change;
  Estimate rms_change;
  PositionFigures by_position;
};

Evaluation summarize(PositionFigures figures);

// The figures of rows begin .. end-1 alone. Throws invalid_argument unless begin <= end <= the rows.
Evaluation of_rows(const Evaluation& evaluation, std::size_t begin, std::size_t end);

// The share by which mean KL fell from `before` to `after`, both on the same rows, with its standard error: of
// the pairs, so that what makes a position hard for both doesn't count. Throws invalid_argument for other rows.
struct KlCut {
  double share = 0.0, error = 0.0;
};
KlCut kl_cut(const Evaluation& before, const Evaluation& after);

// Mean over positions of KL of `b` minus KL of `a`, both on the same rows against one teacher, with the standard
// error of the pairs. Throws invalid_argument for other rows.
Estimate kl_difference(const Evaluation& a, const Evaluation& b);

}  // namespace mixtape
