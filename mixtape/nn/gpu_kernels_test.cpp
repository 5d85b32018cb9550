// Every dispatch that the CPU knows has a launcher, and every kernel that the simulator ran is in the
// fatbins.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/backend/gpu/modules.h"
#include "mixtape/backend/sim/machine.h"
#include "mixtape/runtime/kernel_registry.h"

namespace mixtape {
namespace {

TEST(GpuKernels, EveryHostKernelHasALauncher) {
  const std::vector<std::string> host = builtin_host_kernels();
  ASSERT_GT(host.size(), 100u);
  for (const std::string& name : host) EXPECT_TRUE(gpu::has_launcher(name)) << name;
}

TEST(GpuKernels, TheFatbinsHoldWhatTheSimulatorRuns) {
  const std::vector<std::string> compiled = gpu::module_kernels();
  if (compiled.empty()) GTEST_SKIP() << "built without nvcc";
  for (const std::string& name : sim::kernels()) {
    if (name.starts_with("test_")) continue;
    EXPECT_TRUE(std::binary_search(compiled.begin(), compiled.end(), name)) << name;
  }
}

// So that the name that a profiler shows is found.
TEST(GpuKernels, TheListHasEveryKernel) {
  std::ifstream list("docs/gpu_kernels.txt");
  ASSERT_TRUE(list);
  std::set<std::string> listed;
  for (std::string name, file; list >> name >> file;) listed.insert(name);
  std::vector<std::string> kernels = sim::kernels();
  const std::vector<std::string> compiled = gpu::module_kernels();
  kernels.insert(kernels.end(), compiled.begin(), compiled.end());
  for (const std::string& name : kernels)
    EXPECT_TRUE(name.starts_with("test_") || listed.contains(name)) << name << ": run docs/gpu_kernels.sh";
}

}  // namespace
}  // namespace mixtape
