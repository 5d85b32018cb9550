#pragma once

#include <cstdint>

namespace mixtape {

struct SizeParams {
  std::int64_t count;
};

}  // namespace mixtape
