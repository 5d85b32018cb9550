#pragma once

#include <cstdint>
#include <vector>

#include "mixtape/core/shape.h"

namespace mixtape::oracle {

// The position in x of every element of y, in y's order: all that a move is. Its gradient adds along it.
using Moves = std::vector<std::size_t>;

inline std::vector<std::int64_t> coordinates(const Shape& shape, std::int64_t i) {
  std::vector<std::int64_t> at(static_cast<std::size_t>(shape.rank()));
  for (std::int64_t a = shape.rank() - 1; a >= 0; --a) {
    at[static_cast<std::size_t>(a)] = i % shape[a];
    i /= shape[a];
  }
  return at;
}

inline std::size_t position(const Shape& shape, const std::vector<std::int64_t>& at) {
  std::int64_t i = 0;
  for (std::int64_t a = 0; a < shape.rank(); ++a) i = i * shape[a] + at[static_cast<std::size_t>(a)];
  return static_cast<std::size_t>(i);
}

inline Moves permute(const Shape& x, const Shape& y, const std::vector<std::int64_t>& axes) {
  Moves moves;
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    const auto at = coordinates(y, i);
    std::vector<std::int64_t> from(at.size());
    for (std::size_t a = 0; a < at.size(); ++a) from[static_cast<std::size_t>(axes[a])] = at[a];
    moves.push_back(position(x, from));
  }
  return moves;
}

// y[.., i, ..] = x[.., (i + start) / times, ..]: a slice (times 1) or a repeat (start 0).
inline Moves along_axis(const Shape& x, const Shape& y, std::int64_t axis, std::int64_t start,
                        std::int64_t times) {
  Moves moves;
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    auto at = coordinates(y, i);
    auto& c = at[static_cast<std::size_t>(axis)];
    c = (c + start) / times;
    moves.push_back(position(x, at));
  }
  return moves;
}

template <class T>
std::vector<T> moved(const std::vector<T>& x, const Moves& moves) {
  std::vector<T> y;
  for (const std::size_t from : moves) y.push_back(x[from]);
  return y;
}

inline std::vector<double> moved_back(std::size_t count, const std::vector<double>& dy, const Moves& moves) {
  std::vector<double> dx(count, 0.0);
  for (std::size_t i = 0; i < moves.size(); ++i) dx[moves[i]] += dy[i];
  return dx;
}

}  // namespace mixtape::oracle
