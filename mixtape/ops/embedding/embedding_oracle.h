#pragma once

#include <cstdint>
#include <vector>

namespace mixtape::oracle {

template <class T>
std::vector<T> embedding(const std::vector<T>& table, const std::vector<double>& ids, std::int64_t hidden) {
  std::vector<T> y;
  for (const double id : ids) {
    for (std::int64_t h = 0; h < hidden; ++h) y.push_back(table[static_cast<std::int64_t>(id) * hidden + h]);
  }
  return y;
}

inline std::vector<double> embedding_backward(const std::vector<double>& ids, const std::vector<double>& dy,
                                              std::int64_t rows, std::int64_t hidden) {
  std::vector<double> dtable(static_cast<std::size_t>(rows * hidden));
  for (std::size_t b = 0; b < ids.size(); ++b) {
    for (std::int64_t h = 0; h < hidden; ++h) {
      dtable[static_cast<std::int64_t>(ids[b]) * hidden + h] += dy[static_cast<std::int64_t>(b) * hidden + h];
    }
  }
  return dtable;
}

// One element of one id's gradient, in the contract's order: `occurrences` are its dy, in the order of ids.
inline float embedding_segment_sum(const std::vector<float>& occurrences, std::size_t block_size) {
  float total = 0.0f;
  for (std::size_t begin = 0; begin < occurrences.size(); begin += block_size) {
    float block = 0.0f;
    for (std::size_t i = begin; i < occurrences.size() && i < begin + block_size; ++i)
      block += occurrences[i];
    total += block;
  }
  return total;
}

}  // namespace mixtape::oracle
