#pragma once

#include <cstdint>

namespace mixtape {

struct CholeskyParams {
  std::int64_t batch;
  std::int64_t size;  // K
};

// Rows of the factor that are finished together: what is left of h there, a product with the rows below taken
// off, is factored on the diagonal and solved for to its left.
inline constexpr int kCholeskyBlock = 64;

}  // namespace mixtape
