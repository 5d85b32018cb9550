#pragma once

#include <cstdint>

namespace mixtape {

struct RmsNormParams {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t row_block;  // rows whose share of dw is added up before the blocks are
  float eps;
  // Backward, in bits:
  enum : std::uint32_t { dx = 1, dw = 2 };
  std::uint32_t wanted;
  std::uint32_t accumulate;
};

}  // namespace mixtape
