#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <numeric>
#include <vector>

namespace mixtape::oracle {

struct KlForm {
  double temperature = 1.0;
  std::int64_t k = 0;  // 0: the full vocabulary
  bool rest_bucket = false;
};

// Whether each entry is among the k largest; ties by lower index.
inline std::vector<bool> largest(const double* row, std::int64_t cols, std::int64_t k) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(cols));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [row](auto a, auto b) { return row[a] > row[b]; });
  std::vector<bool> in(order.size(), k == 0);
  for (std::int64_t i = 0; i < k; ++i) in[order[i]] = true;
  return in;
}

// log sum exp(row / T) over the entries where `use` is `wanted`.
template <class T>
T log_sum_exp(const T* row, const std::vector<bool>& use, bool wanted, double temperature) {
  double max = -HUGE_VAL;
  for (std::size_t c = 0; c < use.size(); ++c) {
    if (use[c] == wanted) max = std::max(max, std::real(row[c]) / temperature);
  }
  if (max == -HUGE_VAL) return max;
  T sum = 0;
  for (std::size_t c = 0; c < use.size(); ++c) {
    if (use[c] == wanted) sum += std::exp(row[c] / temperature - max);
  }
  return std::log(sum) + max;
}

// The log-sum-exp that normalises: of all entries with a bucket, else of those in use.
template <class T>
T normaliser(const T* row, const std::vector<bool>& in, const KlForm& form) {
  const T inside = log_sum_exp(row, in, true, form.temperature);
  const T outside = log_sum_exp(row, in, false, form.temperature);
  if (!form.rest_bucket || std::real(outside) == -HUGE_VAL) return inside;
  const double max = std::max(std::real(inside), std::real(outside));
  return std::log(std::exp(inside - max) + std::exp(outside - max)) + max;
}

template <class T>
std::vector<T> kl_div(const std::vector<double>& teacher, const std::vector<T>& student, std::int64_t cols,
                      const KlForm& form) {
  std::vector<T> loss(student.size() / cols);
  for (std::size_t r = 0; r < loss.size(); ++r) {
    const double* t = teacher.data() + r * cols;
    const T* s = student.data() + r * cols;
    const std::vector<bool> in = largest(t, cols, form.k);
    const double t_all = normaliser(t, in, form);
    const T s_all = normaliser(s, in, form);
    for (std::int64_t c = 0; c < cols; ++c) {
      const double log_p = t[c] / form.temperature - t_all;
      if (in[c] && std::exp(log_p) > 0.0)
        loss[r] += std::exp(log_p) * (log_p - (s[c] / form.temperature - s_all));
    }
    const double log_rest = log_sum_exp(t, in, false, form.temperature) - t_all;
    if (!form.rest_bucket || std::exp(log_rest) == 0.0) continue;
    loss[r] += std::exp(log_rest) * (log_rest - (log_sum_exp(s, in, false, form.temperature) - s_all));
  }
  return loss;
}

inline std::vector<double> kl_div_backward(const std::vector<double>& teacher,
                                           const std::vector<double>& student, std::int64_t cols,
                                           const KlForm& form, const std::vector<double>& dloss) {
  std::vector<double> dx(student.size());
  for (std::size_t r = 0; r < dloss.size(); ++r) {
    const double* t = teacher.data() + r * cols;
    const double* s = student.data() + r * cols;
    const std::vector<bool> in = largest(t, cols, form.k);
    const double t_all = normaliser(t, in, form), s_all = normaliser(s, in, form);
    const double t_rest = log_sum_exp(t, in, false, form.temperature) - t_all;
    const double s_rest = log_sum_exp(s, in, false, form.temperature) - s_all;
    for (std::int64_t c = 0; c < cols; ++c) {
      const double p = std::exp(t[c] / form.temperature - t_all);
      const double log_q = s[c] / form.temperature - s_all;
      double d = std::exp(log_q) - p;
      if (!in[c]) d = form.rest_bucket ? std::exp(log_q) - std::exp(log_q - s_rest + t_rest) : 0.0;
      dx[r * cols + c] = dloss[r] / form.temperature * d;
    }
  }
  return dx;
}

}  // namespace mixtape::oracle
