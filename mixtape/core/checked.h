// Sums and products of sizes that callers choose.
#pragma once

#include <cstdint>

#include "mixtape/core/error.h"

namespace mixtape {

// a * b and a + b; throw invalid_argument naming `what` past 63 bits: "repeat: 4 * 4611686018427387905 ...".
inline std::int64_t checked_mul(const char* what, std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  const bool overflow = __builtin_mul_overflow(a, b, &product);
  require(!overflow, what, ": ", a, " * ", b, " is more than 63 bits can count");
  return product;
}
inline std::int64_t checked_add(const char* what, std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  const bool overflow = __builtin_add_overflow(a, b, &sum);
  require(!overflow, what, ": ", a, " + ", b, " is more than 63 bits can count");
  return sum;
}

}  // namespace mixtape
