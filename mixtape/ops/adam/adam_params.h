#pragma once

#include <cstdint>

namespace mixtape {

// Elements of a block, the unit of work: what a block sums does not depend on threads.
inline constexpr std::int64_t kAdamBlock = 32768;

struct AdamParams {
  float beta1;
  float beta2;
  float one_minus_beta1;
  float one_minus_beta2;
  float correction1;  // 1 / (1 - beta1^step)
  float correction2;  // 1 / (1 - beta2^step)
  float eps;
  float lr;
  float keep;  // 1 - lr * weight_decay
  float grad_scale;
};

}  // namespace mixtape
