#pragma once

#include <cstdint>

namespace mixtape {

struct MoeRouteParams {
  std::int64_t tokens;
  std::int64_t experts;
  std::int64_t k;
  std::uint32_t normalise;
  std::uint32_t accumulate;
};

struct MoePlanParams {
  std::int64_t slots;
  std::int64_t experts;
  std::int64_t k;
};

struct MoeCombineParams {
  std::int64_t tokens;
  std::int64_t k;
  std::int64_t cols;
  std::uint32_t has_addend;  // forward
  // Backward, in bits:
  enum : std::uint32_t { dx = 1, dweights = 2 };
  std::uint32_t wanted;
  std::uint32_t accumulate;
};

}  // namespace mixtape
