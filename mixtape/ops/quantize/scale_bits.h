#pragma once

#include <cstdint>

namespace mixtape {

// The gradients of a quantized weight, in bits: a part of the parameters of ops that make them.
struct ScaleBits {
  enum : std::uint32_t { dscales = 1, dbiases = 2 };
  std::uint32_t wanted;
  std::uint32_t accumulate;
};

}  // namespace mixtape
