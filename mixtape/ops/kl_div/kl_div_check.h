// The cases that kl_div is checked with.
#pragma once

#include <vector>

#include "mixtape/ops/kl_div/kl_div.h"
#include "mixtape/ops/kl_div/kl_div_oracle.h"
#include "mixtape/testing/op_check.h"

namespace mixtape {

inline KlOptions options_of(const oracle::KlForm& form) {
  return {static_cast<float>(form.temperature), form.k, form.rest_bucket};
}

testing::OpCheck kl_div_check(const Device& device, DType teacher_dtype, DType dtype, std::int64_t rows,
                              std::int64_t cols, const oracle::KlForm& form);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> kl_div_checks(const Device& device, DType dtype);

}  // namespace mixtape
