// Devices that share work, of one process or of several on one host or more: a thread for each of them, and a communicator
// that the threads meet at.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mixtape/runtime/communicator.h"
#include "mixtape/runtime/device.h"
#include "mixtape/runtime/peer_sums.h"
#include "mixtape/runtime/processes.h"

namespace mixtape {

class DeviceGroup {
 public:
  // Throws invalid_argument for no device, or one that is named twice. The host's processor may be: its members take
  // turns.
  explicit DeviceGroup(std::vector<Device> devices);
  // The devices of this process among those of all that the launch is of; comes back once all have come (processes.h).
  // Their members are numbered process by process, in the order of the ranks. Over processes an error is the end of the
  // group.
  DeviceGroup(std::vector<Device> devices, const Launch& launch);
  ~DeviceGroup();
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;

  const std::vector<Device>& devices() const { return devices_; }  // of this process
  std::int64_t size() const { return std::ssize(names_); }         // members, of all processes
  std::int64_t first_rank() const { return first_rank_; }          // of the members of this process
  std::string name() const;                                        // of all: "cuda:0,cuda:1"
  Processes* processes() const { return processes_.get(); }        // null: this one alone
  // Whether this process is the one that decides, and that results are of.
  bool is_first() const { return first_rank_ == 0; }
  // Which way buffers are added up, for people: "NCCL 2.28.9", or "host memory", with the reason where cards have no
  // better one.
  const std::string& way() const { return way_; }

  // Calls `work` for every device at once, each with its member of the communicator: that of device 0 in the calling
  // thread, each other's in one of its own. Comes back when all have. What one of them throws, the others find at
  // their next sum, and the caller here. Where the work of device 0 ends before that of others, those find
  // interrupted at their next sum, and nothing is thrown here. All processes of the group call at the same time, and
  // come back when the work of all has ended, or one has failed.
  void run(const std::function<void(Communicator& communicator)>& work);

 private:
  void connect();
  void connect_alone();
  void connect_over_processes();
  void name_members();
  void end_together();
  [[noreturn]] void end_by(const std::exception_ptr& error);

  std::vector<Device> devices_;
  std::unique_ptr<Processes> processes_;
  std::vector<std::string> names_;  // of all members
  std::int64_t first_rank_ = 0;
  std::unique_ptr<PeerSums> peers_;  // null: through host memory
  bool is_connected_ = false;
  std::string way_;
};

}  // namespace mixtape
