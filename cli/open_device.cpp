#include "cli/open_device.h"

#include <fmt/core.h>

#include <sstream>
#include <vector>

#include "mixtape/core/error.h"

namespace mixtape::cli {

// A device that this system lacks is the system's refusal, whatever the library calls it.
static Device opened(const std::string& name, std::vector<std::string>& passed_over) {
  try {
    return Device::open(name, &passed_over);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_supported) throw;
    fail(ErrorCode::device, error.what());
  }
}

static void print_device(const Device& device, const std::vector<std::string>& passed_over, std::FILE* out) {
  std::string reasons;
  for (const std::string& reason : passed_over) reasons += (reasons.empty() ? " (" : "; ") + reason;
  fmt::print(out, "device       {}, {}{}\n", device.name(), device.description(),
             reasons.empty() ? "" : reasons + ")");
}

Device open_device(const std::string& name, std::FILE* out) {
  std::vector<std::string> passed_over;
  const Device device = opened(name, passed_over);
  print_device(device, passed_over, out);
  return device;
}

// The best one, and those of its kind with the next indices.
static std::vector<Device> all_devices(std::vector<std::string>& passed_over) {
  std::vector<Device> found = {opened("auto", passed_over)};
  const std::string first = found[0].name();
  const std::size_t colon = first.find(':');
  for (int index = 1; colon != std::string::npos; ++index) {
    try {
      found.push_back(Device::open(fmt::format("{}:{}", first.substr(0, colon), index)));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_supported) throw;
      break;
    }
  }
  return found;
}

static std::vector<Device> named_devices(const std::string& names, std::vector<std::string>& passed_over) {
  std::vector<Device> found;
  std::istringstream list(names + ",");
  for (std::string name; std::getline(list, name, ',');) found.push_back(opened(name, passed_over));
  return found;
}

std::unique_ptr<DeviceGroup> open_devices(const std::string& names) {
  std::vector<std::string> passed_over;
  auto group = std::make_unique<DeviceGroup>(names == "all" ? all_devices(passed_over)
                                                            : named_devices(names, passed_over));
  for (const Device& device : group->devices()) print_device(device, passed_over, stdout);
  if (group->devices().size() > 1) fmt::print("gradients    added up through {}\n", group->way());
  return group;
}

void require_row_for_each(const DeviceGroup& devices, std::int64_t batch) {
  const std::int64_t count = std::ssize(devices.devices());
  require(batch >= count, "--device names ", count, " devices, which share a batch of ", batch,
          " rows: expected a row or more for each, see --batch");
}

}  // namespace mixtape::cli
