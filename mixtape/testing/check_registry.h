// The checks of every op, entered before main by the <op>_check.cpp files: what `mixtape gradcheck` runs.
#pragma once

#include <string>
#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape::testing {

struct OpChecks {
  std::string op;  // the tape function's name
  std::vector<DType> dtypes;
  // The cases of one dtype; the device is where constants of the op (ids, packed codes) go.
  std::vector<OpCheck> (*build)(const Device& device, DType dtype);
};

bool register_op_checks(OpChecks checks);
// Sorted by name.
std::vector<OpChecks> all_op_checks();

// MIXTAPE_OP_CHECKS(softmax, testing::kValueDtypes, softmax_checks): in namespace mixtape, at namespace
// scope.
#define MIXTAPE_OP_CHECKS(op, dtypes, function)                                                \
  namespace {                                                                                  \
  [[maybe_unused]] const bool op##_checks_registered = ::mixtape::testing::register_op_checks( \
      {#op, std::vector<::mixtape::DType>(std::begin(dtypes), std::end(dtypes)), function});   \
  }

}  // namespace mixtape::testing
