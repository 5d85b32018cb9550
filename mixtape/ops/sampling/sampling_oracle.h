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

// Probabilities of one row; those that top_p cuts off are 0.
inline std::vector<double> sampling_probabilities(const std::vector<double>& logits, double temperature,
                                                  double top_p) {
  const double max = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  double sum = 0.0;
  for (const double x : logits) sum += p.emplace_back(std::exp((x - max) / temperature));
  std::vector<double> falling = p;
  std::sort(falling.rbegin(), falling.rend());
  double reached = 0.0, least = 0.0;
  for (std::size_t i = 0; i < falling.size() && reached < top_p * sum; ++i) reached += least = falling[i];
  double kept = 0.0;
  for (double& v : p) kept += v = v >= least ? v : 0.0;
  for (double& v : p) v /= kept;
  return p;
}

// What the draw u, 0 to below 1, picks from one row.
inline double sample(const std::vector<double>& logits, double temperature, double top_p, double u) {
  const std::vector<double> p = sampling_probabilities(logits, temperature, top_p);
  double reached = 0.0;
  std::size_t c = 0;
  while (c + 1 < p.size() && u >= (reached += p[c])) ++c;
  return static_cast<double>(c);
}

}  // namespace mixtape::oracle
