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

}  // namespace mixtape
