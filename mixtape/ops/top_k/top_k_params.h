#pragma once

#include <cstdint>

namespace mixtape {

struct TopKParams {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t k;
  std::uint32_t accumulate;
};

}  // namespace mixtape
