#pragma once

#include <cstdint>

namespace mixtape {

inline constexpr int kMostConvTaps = 16;

struct CausalConv1dParams {
  std::int64_t batch;
  std::int64_t length;
  std::int64_t channels;
  std::int64_t taps;
  std::int64_t run;  // positions of a sequence that are worked on at once, and whose share of dw is added up
  std::uint32_t has_bias;
  std::uint32_t has_history;
  std::uint32_t silu;
  // Backward, in bits:
  enum : std::uint32_t { dx = 1, dhistory = 2, dw = 4, dbias = 8 };
  std::uint32_t wanted;
  std::uint32_t accumulate;

  constexpr std::int64_t runs() const { return (length + run - 1) / run; }  // of a sequence
};

}  // namespace mixtape
