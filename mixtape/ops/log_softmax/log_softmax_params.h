#pragma once

#include <cstdint>

namespace mixtape {

struct LogSoftmaxParams {
  std::int64_t rows;
  std::int64_t cols;
  std::uint32_t accumulate;
};

}  // namespace mixtape
