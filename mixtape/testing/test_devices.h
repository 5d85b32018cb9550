// The devices that tests run on: those that MIXTAPE_TEST_DEVICES names ("cpu,sim"), or the CPU.
#pragma once

#include <string>
#include <vector>

#include "mixtape/runtime/device.h"

namespace mixtape::testing {

std::vector<Device> test_devices();
// Their names, as parameters of a test.
std::vector<std::string> test_device_names();
// The most times that an op is run to see that its bits stay: twice on the simulator, elsewhere MIXTAPE_TEST_RUNS, for a
// checker that makes every run slow, or 20.
int most_runs(const Device& device);
// For tests of whole models: without the simulator under AddressSanitizer, where they would take many minutes there; the
// ops' tests have it.
std::vector<std::string> model_device_names();

}  // namespace mixtape::testing
