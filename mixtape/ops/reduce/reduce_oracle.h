#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace mixtape::oracle {

template <class T>
std::vector<T> row_sum(const std::vector<T>& x, std::int64_t cols, double divisor) {
  std::vector<T> y(x.size() / static_cast<std::size_t>(cols), T(0.0));
  for (std::size_t i = 0; i < x.size(); ++i) y[i / static_cast<std::size_t>(cols)] += x[i] / divisor;
  return y;
}

inline std::vector<double> row_sum_backward(const std::vector<double>& dy, std::int64_t cols,
                                            double divisor) {
  std::vector<double> dx;
  for (const double d : dy) dx.insert(dx.end(), static_cast<std::size_t>(cols), d / divisor);
  return dx;
}

// For every element of a tensor, which element of the reduced one it is added to.
inline std::vector<std::size_t> reduced_places(const std::vector<std::int64_t>& dims,
                                               const std::vector<std::int64_t>& axes) {
  std::vector<std::size_t> places;
  std::int64_t count = 1;
  for (const std::int64_t size : dims) count *= size;
  for (std::int64_t i = 0; i < count; ++i) {
    std::size_t place = 0;
    std::int64_t below = count;
    for (std::size_t a = 0; a < dims.size(); ++a) {
      below /= dims[a];
      const bool is_reduced = std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(a)) != axes.end();
      if (!is_reduced)
        place = place * static_cast<std::size_t>(dims[a]) + static_cast<std::size_t>(i / below % dims[a]);
    }
    places.push_back(place);
  }
  return places;
}

// y[p] = the sum of what belongs to place p, divided.
template <class T>
std::vector<T> sum_to_places(const std::vector<T>& x, const std::vector<std::size_t>& places,
                             double divisor) {
  std::vector<T> y(*std::max_element(places.begin(), places.end()) + 1, T(0.0));
  for (std::size_t i = 0; i < x.size(); ++i) y[places[i]] += x[i] / divisor;
  return y;
}

// y[i] = what stands at i's place, divided.
template <class T>
std::vector<T> spread_from_places(const std::vector<T>& x, const std::vector<std::size_t>& places,
                                  double divisor) {
  std::vector<T> y;
  for (const std::size_t place : places) y.push_back(x[place] / divisor);
  return y;
}

template <class T>
T masked_mean(const std::vector<T>& loss, const std::vector<double>& weights) {
  T sum = 0.0;
  double total = 0.0;
  for (std::size_t r = 0; r < loss.size(); ++r) {
    if (weights[r] != 0.0) sum += weights[r] * loss[r];
    total += weights[r];
  }
  return total == 0.0 ? T(0.0) : sum / total;
}

inline std::vector<double> masked_mean_backward(const std::vector<double>& weights, double dy) {
  double total = 0.0;
  for (const double w : weights) total += w;
  std::vector<double> dloss(weights.size(), 0.0);
  for (std::size_t r = 0; r < weights.size(); ++r) dloss[r] = total == 0.0 ? 0.0 : dy * weights[r] / total;
  return dloss;
}

}  // namespace mixtape::oracle
