// Sums over several devices that don't go through the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mixtape/runtime/device.h"

namespace mixtape {

class PeerSums {
 public:
  virtual ~PeerSums() = default;
  virtual std::string name() const = 0;  // for people: the library and its version
  // Once, before any sum. Throws not_supported with the reason. The devices are all there are:
  virtual void join() = 0;
  // ... or those from number `first_rank` on of `size` devices, which other processes have the others of, and join at the
  // same time by the same invitation, one of theirs. Waits for them.
  virtual std::vector<std::byte> invitation() = 0;
  virtual void join(std::span<const std::byte> invitation, std::int64_t first_rank, std::int64_t size) = 0;
  // Enqueues on device `index` of this process: `count` elements, f32, become the sums over all devices, added in an
  // order that follows from the devices and the count alone. Called for each device, in a thread of its own.
  virtual void add_up(std::size_t index, Memory& memory, std::size_t offset, std::size_t count) = 0;
  // Ends what waits for a device that has failed. From then on add_up throws.
  virtual void abort() = 0;
};

// Backends enter theirs here before main. The factory gives null for devices of another kind, and throws not_supported
// with the reason where it should have a way. What it gives has not joined yet.
using PeerSumsFactory = std::function<std::unique_ptr<PeerSums>(const std::vector<Device>& devices)>;
bool register_peer_sums(PeerSumsFactory factory);
// Of the first backend that has them for these devices; null: none has.
std::unique_ptr<PeerSums> open_peer_sums(const std::vector<Device>& devices);

}  // namespace mixtape
