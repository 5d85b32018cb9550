#pragma once

#include <cstdint>

namespace mixtape {

struct L2NormParams {
  std::int64_t rows;
  std::int64_t cols;
  float eps;
  std::uint32_t accumulate;
};

}  // namespace mixtape
