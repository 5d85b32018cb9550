#include "cli/open_device.h"

#include <fmt/core.h>

#include <vector>

namespace mixtape::cli {

Device open_device(const std::string& name, std::FILE* out) {
  std::vector<std::string> passed_over;
  const Device device = Device::open(name, &passed_over);
  std::string reasons;
  for (const std::string& reason : passed_over) reasons += (reasons.empty() ? " (" : "; ") + reason;
  fmt::print(out, "device       {}, {}{}\n", device.name(), device.description(),
             reasons.empty() ? "" : reasons + ")");
  return device;
}

}  // namespace mixtape::cli
