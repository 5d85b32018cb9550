#include "mixtape/backend/gpu/modules.h"

#include <gtest/gtest.h>

namespace mixtape::gpu {
namespace {

Module module_of(std::vector<int> machine_code, int ptx) {
  return {"test", nullptr, nullptr, std::move(machine_code), ptx, {}};
}

TEST(Modules, MachineCodeRunsOnItsOwnCardsAndPtxOnNewerOnes) {
  const Module exact = module_of({90}, 0), both = module_of({90}, 75);
  for (const int capability : {75, 89, 90, 100, 120}) {
    EXPECT_EQ(runs_on(exact, capability), capability == 90) << capability;
    EXPECT_TRUE(runs_on(both, capability)) << capability;
  }
  EXPECT_FALSE(runs_on(both, 70));
}

}  // namespace
}  // namespace mixtape::gpu
