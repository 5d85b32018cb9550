#include "cli/open_device.h"

#include <fmt/core.h>

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

Device open_device(const std::string& name, std::FILE* out) {
  std::vector<std::string> passed_over;
  const Device device = opened(name, passed_over);
  std::string reasons;
  for (const std::string& reason : passed_over) reasons += (reasons.empty() ? " (" : "; ") + reason;
  fmt::print(out, "device       {}, {}{}\n", device.name(), device.description(),
             reasons.empty() ? "" : reasons + ")");
  return device;
}

}  // namespace mixtape::cli
