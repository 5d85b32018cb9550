#pragma once

#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <vector>

namespace mixtape::oracle {

struct Box {
  std::int64_t outer, middle, inner;
};

inline std::array<bool, 3> is_reduced(const std::vector<std::int64_t>& axes) {
  std::array<bool, 3> found = {false, false, false};
  for (const std::int64_t a : axes) found[static_cast<std::size_t>(a)] = true;
  return found;
}

// Where in x [outer, middle, inner] the largest of sign * x stands, for every position on the axes that stay.
template <class T>
std::vector<std::size_t> extreme_places(const std::vector<T>& x, const Box& box,
                                        const std::array<bool, 3>& reduced, double sign) {
  const std::int64_t width = reduced[2] ? 1 : box.inner, height = (reduced[1] ? 1 : box.middle) * width;
  std::vector<std::int64_t> best(static_cast<std::size_t>((reduced[0] ? 1 : box.outer) * height), -1);
  for (std::int64_t o = 0; o < box.outer; ++o) {
    for (std::int64_t m = 0; m < box.middle; ++m) {
      for (std::int64_t i = 0; i < box.inner; ++i) {
        const std::int64_t at = (o * box.middle + m) * box.inner + i;
        std::int64_t& place = best[static_cast<std::size_t>(
            (reduced[0] ? 0 : o * height) + (reduced[1] ? 0 : m * width) + (reduced[2] ? 0 : i))];
        const auto value = [&](std::int64_t p) { return sign * std::real(x[static_cast<std::size_t>(p)]); };
        if (place < 0 || value(at) > value(place)) place = at;
      }
    }
  }
  return {best.begin(), best.end()};
}

}  // namespace mixtape::oracle
