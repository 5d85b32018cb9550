#pragma once

#include <cstdint>

namespace mixtape {

struct GroupedMatmulParams {
  std::int64_t rows;     // T
  std::int64_t experts;  // E
  std::int64_t n;
  std::int64_t k;
  std::uint32_t accumulate;
};

}  // namespace mixtape
