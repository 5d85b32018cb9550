#pragma once

#include <cstdint>

namespace mixtape {

struct ClampedSwigluParams {
  std::int64_t count;
  float alpha;
  float limit;
  // Backward, in bits:
  enum : std::uint32_t { dgate = 1, dup = 2 };
  std::uint32_t wanted;
  std::uint32_t accumulate;
};

}  // namespace mixtape
