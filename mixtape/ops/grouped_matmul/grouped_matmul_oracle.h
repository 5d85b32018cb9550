#pragma once

#include <cstdint>
#include <vector>

namespace mixtape::oracle {

struct GroupedMatmulCase {
  std::int64_t n, k;
  std::vector<std::int64_t> sizes;  // rows of each expert
  std::int64_t rows() const {
    std::int64_t sum = 0;
    for (const std::int64_t s : sizes) sum += s;
    return sum;
  }
  // The expert of each row.
  std::vector<std::int64_t> experts() const {
    std::vector<std::int64_t> all;
    for (std::size_t e = 0; e < sizes.size(); ++e)
      all.insert(all.end(), sizes[e], static_cast<std::int64_t>(e));
    return all;
  }
};

template <class T>
std::vector<T> grouped_matmul(const GroupedMatmulCase& c, const std::vector<T>& x, const std::vector<T>& w) {
  const std::vector<std::int64_t> experts = c.experts();
  std::vector<T> y(c.rows() * c.n);
  for (std::int64_t t = 0; t < c.rows(); ++t) {
    for (std::int64_t n = 0; n < c.n; ++n) {
      for (std::int64_t k = 0; k < c.k; ++k)
        y[t * c.n + n] += x[t * c.k + k] * w[(experts[t] * c.n + n) * c.k + k];
    }
  }
  return y;
}

// {dx, dw}
inline std::vector<std::vector<double>> grouped_matmul_backward(const GroupedMatmulCase& c,
                                                                const std::vector<double>& x,
                                                                const std::vector<double>& w,
                                                                const std::vector<double>& dy) {
  const std::vector<std::int64_t> experts = c.experts();
  std::vector<double> dx(x.size()), dw(w.size());
  for (std::int64_t t = 0; t < c.rows(); ++t) {
    for (std::int64_t n = 0; n < c.n; ++n) {
      for (std::int64_t k = 0; k < c.k; ++k) {
        dx[t * c.k + k] += dy[t * c.n + n] * w[(experts[t] * c.n + n) * c.k + k];
        dw[(experts[t] * c.n + n) * c.k + k] += dy[t * c.n + n] * x[t * c.k + k];
      }
    }
  }
  return {dx, dw};
}

}  // namespace mixtape::oracle
