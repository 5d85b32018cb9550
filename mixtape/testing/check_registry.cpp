#include "mixtape/testing/check_registry.h"

#include <algorithm>

namespace mixtape::testing {
namespace {

std::vector<OpChecks>& table() {
  static std::vector<OpChecks> checks;
  return checks;
}

}  // namespace

bool register_op_checks(OpChecks checks) {
  table().push_back(std::move(checks));
  return true;
}

std::vector<OpChecks> all_op_checks() {
  std::vector<OpChecks> sorted = table();
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.op < b.op; });
  return sorted;
}

}  // namespace mixtape::testing
