#include "mixtape/testing/test_devices.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace mixtape::testing {

std::vector<Device> test_devices() {
  const char* names = std::getenv("MIXTAPE_TEST_DEVICES");
  std::istringstream list(names ? names : "cpu");
  std::vector<Device> devices;
  for (std::string name; std::getline(list, name, ',');) devices.push_back(Device::open(name));
  return devices;
}

int most_runs(const Device& device) {
  if (device.name() == "sim") return 2;
  const char* runs = std::getenv("MIXTAPE_TEST_RUNS");
  return runs != nullptr ? std::max(std::atoi(runs), 1) : 20;
}

std::vector<std::string> test_device_names() {
  std::vector<std::string> names;
  for (const Device& device : test_devices()) names.push_back(device.name());
  return names;
}

std::vector<std::string> model_device_names() {
  std::vector<std::string> names = test_device_names();
#ifdef __SANITIZE_ADDRESS__
  std::erase(names, "sim");
#endif
  return names;
}

}  // namespace mixtape::testing
