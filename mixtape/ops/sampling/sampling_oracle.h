#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace mixtape::oracle {

// x [rows, cols] without NaN.
inline std::vector<double> argmax(const std::vector<double>& x, std::int64_t cols) {
  std::vector<double> indices;
  for (auto row = x.begin(); row != x.end(); row += cols)
    indices.push_back(static_cast<double>(std::max_element(row, row + cols) - row));
  return indices;
}

// What takes part in a draw.
struct Cuts {
  double top_p = 1.0;
  std::int64_t top_k = 0;
  double min_p = 0.0;
};

// Probabilities of one row; those that are cut off are 0.
inline std::vector<double> sampling_probabilities(const std::vector<double>& logits, double temperature,
                                                  const Cuts& cuts) {
  const double max = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  for (const double x : logits) p.push_back(std::exp((x - max) / temperature));
  std::vector<double> falling = p;
  std::sort(falling.rbegin(), falling.rend());
  const auto at_least = [&](double least) {
    for (double& v : p) v = v >= least ? v : 0.0;
    while (falling.back() < least) falling.pop_back();
  };
  if (cuts.top_k > 0) at_least(falling[std::min(falling.size(), static_cast<std::size_t>(cuts.top_k)) - 1]);
  at_least(cuts.min_p);
  double sum = 0.0, reached = 0.0, least = 0.0;
  for (const double v : p) sum += v;
  for (std::size_t i = 0; i < falling.size() && reached < cuts.top_p * sum; ++i)
    reached += least = falling[i];
  at_least(least);
  double kept = 0.0;
  for (const double v : p) kept += v;
  for (double& v : p) v /= kept;
  return p;
}

// What the draw u, 0 to below 1, picks from one row.
inline double sample(const std::vector<double>& logits, double temperature, const Cuts& cuts, double u) {
  const std::vector<double> p = sampling_probabilities(logits, temperature, cuts);
  double reached = 0.0;
  std::size_t c = 0;
  while (c + 1 < p.size() && u >= (reached += p[c])) ++c;
  return static_cast<double>(c);
}

}  // namespace mixtape::oracle
