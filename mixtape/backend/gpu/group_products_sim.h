// The simulator's face of the words for products of a warp group: they are done at once, by each thread for its own sums.
#pragma once

#include "mixtape/backend/gpu/group_products.h"

namespace mixtape {
namespace sim {

template <class T>
float in_panels(const InPanels<T>& in, int row, int col) {
  const int r = in.row + row, c = in.col + col;
  const int chunk = c % kPanel / 8 ^ (r & 7);
  return static_cast<float>(static_cast<T>(in.tile[(c / kPanel * in.rows + r) * kPanel + chunk * 8 + c % 8]));
}
// Term k of a row of an operand.
template <bool DenseRows, class T>
float term(const InPanels<T>& in, int row, int k) {
  return DenseRows ? in_panels(in, k, row) : in_panels(in, row, k);
}
// Element i of c[j]: its row in the warp's 16, and its column.
inline int row_of_sum(int i) { return i / 2 * 8 + lane() / 4; }
inline int col_of_sum(int j, int i) { return j * 8 + lane() % 4 * 2 + i % 2; }

}  // namespace sim

template <class T, int N, bool DenseA = false, bool DenseB = false>
void multiply_group(float (&c)[N / 8][4], const InPanels<T>& a, const InPanels<T>& b, bool keeps) {
  const int first = warp() % 4 * 16;
  for (int j = 0; j < N / 8; ++j) {
    for (int i = 0; i < 4; ++i) {
      if (!keeps) c[j][i] = 0.0f;
      for (int k = 0; k < 16; ++k)
        c[j][i] += sim::term<DenseA>(a, first + sim::row_of_sum(i), k) *
                   sim::term<DenseB>(b, sim::col_of_sum(j, i), k);
    }
  }
}

template <class T, int N>
void multiply_group(float (&c)[N / 8][4], const std::uint32_t (&weights)[4], const InPanels<T>& b) {
  const std::uint64_t of_half[2] = {weights[0] | static_cast<std::uint64_t>(weights[2]) << 32,
                                    weights[1] | static_cast<std::uint64_t>(weights[3]) << 32};
  float a[2][16];  // rows g and g + 8
  for (int half = 0; half < 2; ++half) {
    for (int from = 0; from < 4; ++from) {  // holds columns 2 from, 2 from + 1 and the same 8 further
      const std::uint64_t bits = lane_shuffle(of_half[half], lane() / 4 * 4 + from);
      for (int k = 0; k < 4; ++k) a[half][k / 2 * 8 + 2 * from + k % 2] = sim::half_of<T>(bits, k);
    }
  }
  for (int j = 0; j < N / 8; ++j) {
    for (int i = 0; i < 4; ++i) {
      for (int k = 0; k < 16; ++k) c[j][i] += a[i / 2][k] * sim::in_panels(b, k, sim::col_of_sum(j, i));
    }
  }
}

inline void begin_products() {}
inline void commit_products() {}
template <int Groups, class... Sums>
void wait_products(Sums&...) {}
inline void publish_copies() {}

}  // namespace mixtape
