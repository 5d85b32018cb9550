#pragma once

#include <cstdint>
#include <vector>

namespace mixtape::oracle {

// a [batch, n], b [batch, m]
template <class T>
std::vector<T> outer_product(const std::vector<T>& a, const std::vector<T>& b, std::int64_t n,
                             std::int64_t m) {
  std::vector<T> y;
  for (std::size_t t = 0; t < a.size() / n; ++t) {
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < m; ++j) y.push_back(a[t * n + i] * b[t * m + j]);
    }
  }
  return y;
}

// da, then db.
inline std::vector<std::vector<double>> outer_product_backward(const std::vector<double>& a,
                                                               const std::vector<double>& b, std::int64_t n,
                                                               std::int64_t m,
                                                               const std::vector<double>& dy) {
  std::vector<double> da(a.size()), db(b.size());
  for (std::size_t t = 0; t < a.size() / n; ++t) {
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < m; ++j) {
        da[t * n + i] += dy[(t * n + i) * m + j] * b[t * m + j];
        db[t * m + j] += dy[(t * n + i) * m + j] * a[t * n + i];
      }
    }
  }
  return {da, db};
}

}  // namespace mixtape::oracle
