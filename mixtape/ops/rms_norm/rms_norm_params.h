#pragma once

#include <cstdint>

namespace mixtape {

struct RmsNormParams {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t row_block;  // rows whose share of dw is added up before the blocks are
  float eps;
  std::uint32_t wants_dx;
  std::uint32_t wants_dw;
  std::uint32_t accumulate_dx;
  std::uint32_t accumulate_dw;
};

}  // namespace mixtape
