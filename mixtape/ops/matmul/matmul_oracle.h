#pragma once

#include <cstdint>
#include <vector>

namespace mixtape::oracle {

struct MatmulShape {
  std::int64_t batch, m, n, k;
  bool trans_a = false, trans_b = false;
  std::int64_t a(std::int64_t i, std::int64_t row, std::int64_t inner) const {
    return i * m * k + (trans_a ? inner * m + row : row * k + inner);
  }
  std::int64_t b(std::int64_t i, std::int64_t inner, std::int64_t col) const {
    return i * k * n + (trans_b ? col * k + inner : inner * n + col);
  }
  std::int64_t y(std::int64_t i, std::int64_t row, std::int64_t col) const {
    return i * m * n + row * n + col;
  }
};

template <class T>
std::vector<T> matmul(const MatmulShape& s, const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> y(s.batch * s.m * s.n);
  for (std::int64_t i = 0; i < s.batch; ++i) {
    for (std::int64_t row = 0; row < s.m; ++row) {
      for (std::int64_t col = 0; col < s.n; ++col) {
        for (std::int64_t l = 0; l < s.k; ++l) y[s.y(i, row, col)] += a[s.a(i, row, l)] * b[s.b(i, l, col)];
      }
    }
  }
  return y;
}

// {da, db}
inline std::vector<std::vector<double>> matmul_backward(const MatmulShape& s, const std::vector<double>& a,
                                                        const std::vector<double>& b,
                                                        const std::vector<double>& dy) {
  std::vector<double> da(a.size()), db(b.size());
  for (std::int64_t i = 0; i < s.batch; ++i) {
    for (std::int64_t row = 0; row < s.m; ++row) {
      for (std::int64_t col = 0; col < s.n; ++col) {
        for (std::int64_t l = 0; l < s.k; ++l) {
          da[s.a(i, row, l)] += dy[s.y(i, row, col)] * b[s.b(i, l, col)];
          db[s.b(i, l, col)] += dy[s.y(i, row, col)] * a[s.a(i, row, l)];
        }
      }
    }
  }
  return {da, db};
}

}  // namespace mixtape::oracle
