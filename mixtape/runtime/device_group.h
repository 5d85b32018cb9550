// Devices of one process that share work: a thread for each of them, and a communicator that the threads meet at.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mixtape/runtime/communicator.h"
#include "mixtape/runtime/device.h"
#include "mixtape/runtime/peer_sums.h"

namespace mixtape {

class DeviceGroup {
 public:
  // Throws invalid_argument for no device, or one that is named twice. The host's processor may be: its members take
  // turns.
  explicit DeviceGroup(std::vector<Device> devices);
  ~DeviceGroup();
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;

  const std::vector<Device>& devices() const { return devices_; }
  std::string name() const;  // "cuda:0,cuda:1"
  // Which way buffers are added up, for people: "NCCL 2.28.9", or "host memory", with the reason where cards have no
  // better one.
  const std::string& way() const { return way_; }

  // Calls `work` for every device at once, each with its member of the communicator: that of device 0 in the calling
  // thread, each other's in one of its own. Comes back when all have. What one of them throws, the others find at
  // their next sum, and the caller here. Where the work of device 0 ends before that of others, those find
  // interrupted at their next sum, and nothing is thrown here.
  void run(const std::function<void(Communicator& communicator)>& work);

 private:
  void connect();
  std::vector<Device> devices_;
  std::unique_ptr<PeerSums> peers_;  // null: through host memory
  bool is_connected_ = false;
  std::string way_;
};

}  // namespace mixtape
