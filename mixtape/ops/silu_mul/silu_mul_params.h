#pragma once

#include <cstdint>

namespace mixtape {

// Which of the two gradients are wanted, and how they are written.
struct SiluMulParams {
  std::int64_t count;
  std::uint32_t wants_dgate;
  std::uint32_t wants_dup;
  std::uint32_t accumulate_dgate;
  std::uint32_t accumulate_dup;
};

}  // namespace mixtape
