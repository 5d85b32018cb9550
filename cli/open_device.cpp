#include "cli/open_device.h"

#include <fmt/core.h>

#include <set>
#include <sstream>
#include <vector>

#include "cli/terminal.h"
#include "cli/text_table.h"
#include "mixtape/core/counted.h"
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
  const std::string text =
      str(device.name(), ", ", device.description(), reasons, reasons.empty() ? "" : ")");
  out == stdout ? print_fact("device", "{}", text) : note("device       " + text);
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

// The card with this process's number on its host; the only one that a process sees was chosen for it.
static Device device_of(const Launch& launch, std::vector<std::string>& passed_over) {
  const std::vector<Device> all = all_devices(passed_over);
  if (all.size() == 1) return all[0];
  const auto index = static_cast<std::size_t>(launch.local_rank);
  if (index >= all.size())
    fail(ErrorCode::device, "device: this is process ", index, " of its host (from 0), which has ",
         all.size(), " cards, expected one for each process, or --device");
  return all[index];
}

static std::vector<Device> devices_of(const std::string& names, const std::optional<Launch>& launch,
                                      std::vector<std::string>& passed_over) {
  if (names == "all") return all_devices(passed_over);
  if (names == "auto" && launch) return {device_of(*launch, passed_over)};
  return named_devices(names, passed_over);
}

// Standard output is the first process's.
static void tell_process(const Launch& launch, const std::vector<Device>& devices) {
  const std::string place = fmt::format("{}:{}", launch.address, launch.port);
  if (launch.rank == 0) {
    fmt::print("processes    {}, which meet at {}\n", launch.size, place);
    return;
  }
  for (const Device& d : devices)
    put_error(
        fmt::format("rank {:<7} {}, {}; rank 0 is at {}\n", launch.rank, d.name(), d.description(), place));
}

static std::string hosts_of(const Processes& processes) {
  std::string all;
  for (const std::string& host : std::set(processes.hosts().begin(), processes.hosts().end()))
    all += (all.empty() ? "" : ", ") + host;
  return all;
}

std::unique_ptr<DeviceGroup> open_devices(const std::string& names, const std::optional<Launch>& launch) {
  std::vector<std::string> passed_over;
  std::vector<Device> devices = devices_of(names, launch, passed_over);
  for (const Device& device : devices) print_device(device, passed_over, stdout);
  if (launch) tell_process(*launch, devices);
  auto group = launch ? std::make_unique<DeviceGroup>(std::move(devices), *launch)
                      : std::make_unique<DeviceGroup>(std::move(devices));
  if (launch) print_fact("hosts", "{}", hosts_of(*group->processes()));
  if (group->size() > 1) print_fact("gradients", "added up through {}", group->way());
  return group;
}

void require_row_for_each(const DeviceGroup& devices, std::int64_t batch) {
  const std::int64_t count = devices.size();
  require(batch >= count, devices.processes() ? "the processes have " : "--device names ", count,
          " devices, which share a batch of ", counted(batch, "row"),
          ": expected a row or more for each, see --batch");
}

}  // namespace mixtape::cli
