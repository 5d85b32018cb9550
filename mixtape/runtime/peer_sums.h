// Sums over several devices that don't go through the host.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mixtape/runtime/device.h"

namespace mixtape {

class PeerSums {
 public:
  virtual ~PeerSums() = default;
  virtual std::string name() const = 0;  // for people: the library and its version
  // Enqueues on device `rank` of the group: `count` elements, f32, become the sums over all devices, added in an order
  // that follows from the devices and the count alone. Called for each device, in a thread of its own.
  virtual void add_up(std::size_t rank, Memory& memory, std::size_t offset, std::size_t count) = 0;
  // Ends what waits for a device that has failed. From then on add_up throws.
  virtual void abort() = 0;
};

// Backends enter theirs here before main. The factory gives null for devices of another kind, and throws not_supported
// with the reason where it should have a way.
using PeerSumsFactory = std::function<std::unique_ptr<PeerSums>(const std::vector<Device>& devices)>;
bool register_peer_sums(PeerSumsFactory factory);
// Of the first backend that has them for these devices; null: none has.
std::unique_ptr<PeerSums> open_peer_sums(const std::vector<Device>& devices);

}  // namespace mixtape
