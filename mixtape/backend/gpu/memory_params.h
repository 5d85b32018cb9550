#pragma once

#include <cstdint>

namespace mixtape {

struct FillParams {
  std::int64_t count;
  float value;
};
struct AccumulateParams {
  std::int64_t count;
};
struct ConvertParams {
  std::int64_t count;
  std::uint32_t accumulate;
};

}  // namespace mixtape
