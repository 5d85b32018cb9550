#pragma once

#include <cstdint>

namespace mixtape {

// What the backward needs of a row: max and log sum exp(z - max) of the teacher and of the student, where
// z = logits / T, and log(P/Q).
inline constexpr std::int64_t kKlStats = 5;

struct KlDivParams {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t k;  // entries per row of TopKTargets; 0 in the full form
  float inv_t;     // 1 / temperature
  std::uint32_t rest_bucket;
  std::uint32_t accumulate;
};

}  // namespace mixtape
