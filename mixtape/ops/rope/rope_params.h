#pragma once

#include <cstdint>

namespace mixtape {

struct RopeParams {
  std::int64_t batch;
  std::int64_t length;
  std::int64_t heads;
  std::int64_t head_dim;
  std::int64_t pairs;           // d/2
  std::int64_t position_batch;  // batch, or 1 where all sequences share their positions
  float factor;
  std::uint32_t is_interleaved;
  std::uint32_t accumulate;
};

}  // namespace mixtape
