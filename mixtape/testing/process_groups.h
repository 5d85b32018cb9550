// Groups of devices of several processes of one run, each in a thread that stands for its process: they know each other
// by their connections alone.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "mixtape/runtime/device_group.h"
#include "mixtape/testing/free_port.h"

namespace mixtape::testing {

// Calls `work` for the group of each process, which has those devices; gives the error of each, empty for none.
inline std::vector<std::string> run_processes(const std::vector<std::vector<Device>>& devices,
                                              const std::function<void(DeviceGroup& group)>& work) {
  const int port = free_port();
  std::vector<std::string> errors(devices.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const auto number = static_cast<std::int64_t>(rank);
      try {
        DeviceGroup group(devices[rank], {.rank = number,
                                          .size = std::ssize(devices),
                                          .local_rank = number,
                                          .address = "localhost",
                                          .port = port,
                                          .patience = std::chrono::seconds(60),
                                          .program = "tests"});
        work(group);
      } catch (const Error& error) {
        errors[rank] = error.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return errors;
}

}  // namespace mixtape::testing
