#include "mixtape/runtime/device_group.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <sstream>
#include <thread>

#include "mixtape/runtime/group_member.h"

namespace mixtape {
namespace {

// Where a process dies, cards wait for its cards: they are ended then.
class Watch {
 public:
  Watch(const Processes& processes, PeerSums& peers)
      : thread_([&] {
          while (!is_over_) {
            if (processes.has_lost_one()) return peers.abort();
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
          }
        }) {}
  ~Watch() {
    is_over_ = true;
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

std::string list_of(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ",") + name;
  return all;
}

std::vector<std::string> names_of(const std::vector<Device>& devices) {
  std::vector<std::string> names;
  for (const Device& d : devices) names.push_back(d.name());
  return names;
}

void check(const std::vector<Device>& devices) {
  require(!devices.empty(), "devices: found none, expected one or more");
  for (auto d = devices.begin(); d != devices.end(); ++d) {
    const bool is_again = std::find(devices.begin(), d, *d) != d && !d->caps().has_host_memory;
    require(!is_again, "devices: ", d->name(), " is named twice, expected different ones");
  }
}

// Why the work isn't supported here; empty: it is.
std::string refusal_of(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_supported) throw;
    return error.what();
  }
}

// Throws not_supported in all processes if one refuses.
void require_no_refusal(Processes& processes, const std::string& mine) {
  const std::vector<std::string> all = processes.share(mine);
  for (std::size_t p = 0; p < all.size(); ++p) {
    if (!all[p].empty())
      fail(ErrorCode::not_supported, processes.name_of(static_cast<std::int64_t>(p)), ": ", all[p]);
  }
}

}  // namespace

DeviceGroup::DeviceGroup(std::vector<Device> devices)
    : devices_(std::move(devices)), names_(names_of(devices_)) {
  check(devices_);
  connect();
}

DeviceGroup::DeviceGroup(std::vector<Device> devices, const Launch& launch) : devices_(std::move(devices)) {
  check(devices_);
  processes_ = std::make_unique<Processes>(launch, list_of(names_of(devices_)));
  name_members();
  connect();
}

DeviceGroup::~DeviceGroup() = default;

void DeviceGroup::name_members() {
  for (std::int64_t p = 0; p < processes_->size(); ++p) {
    if (p == processes_->rank()) first_rank_ = std::ssize(names_);
    std::istringstream list(processes_->said()[static_cast<std::size_t>(p)]);
    for (std::string name; std::getline(list, name, ',');) names_.push_back(name);
  }
}

void DeviceGroup::connect() {
  is_connected_ = true;
  peers_ = nullptr;
  way_ = "host memory";
  if (size() == 1) return;
  try {
    processes_ ? connect_over_processes() : connect_alone();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_supported) throw;
    peers_ = nullptr;
    way_ += str(" (", error.what(), ")");
  }
}

void DeviceGroup::connect_alone() {
  peers_ = open_peer_sums(devices_);
  if (!peers_) return;
  peers_->join();
  way_ = peers_->name();
}

// Every process says which way it has, and takes it if all have the same one; what can't be joined by one is joined by
// none.
void DeviceGroup::connect_over_processes() {
  const std::string refusal = refusal_of([this] { peers_ = open_peer_sums(devices_); });
  require_no_refusal(*processes_, refusal);
  const std::vector<std::string> ways = processes_->share(peers_ ? peers_->name() : "");
  for (std::size_t p = 0; p < ways.size(); ++p) {
    if (ways[p] != ways[0])
      fail(ErrorCode::not_supported, processes_->name_of(static_cast<std::int64_t>(p)), " has ",
           ways[p].empty() ? "no such way" : ways[p], ", rank 0 ", ways[0].empty() ? "none" : ways[0]);
  }
  if (!peers_) return;
  Bytes invitation;
  require_no_refusal(*processes_, refusal_of([&] {
    if (processes_->is_first()) invitation = peers_->invitation();
  }));
  processes_->broadcast(Exchange::message, invitation);
  require_no_refusal(*processes_, refusal_of([&] { peers_->join(invitation, first_rank_, size()); }));
  way_ = peers_->name();
}

std::string DeviceGroup::name() const { return list_of(names_); }

void DeviceGroup::run(const std::function<void(Communicator& communicator)>& work) {
  if (!is_connected_) connect();
  Board board(devices_.size());
  const auto leave_by = [&](const std::exception_ptr& error) {
    if (board.meeting.leave(error) && peers_) peers_->abort();
  };
  const auto take_part = [&](std::size_t index) {
    GroupMember member(board, index, first_rank_, size(), peers_.get(), processes_.get());
    try {
      work(member);
      board.meeting.leave(nullptr);
    } catch (const Meeting::Ended&) {
      leave_by(index == 0 ? std::current_exception() : nullptr);
    } catch (...) {
      leave_by(std::current_exception());
    }
  };
  std::optional<Watch> watch;
  std::vector<std::thread> threads;
  try {
    if (processes_ && peers_) watch.emplace(*processes_, *peers_);
    for (std::size_t index = 1; index < devices_.size(); ++index) threads.emplace_back(take_part, index);
    take_part(0);
  } catch (...) {  // no thread to be had
    leave_by(std::current_exception());
  }
  for (std::thread& t : threads) t.join();
  if (board.meeting.error() == nullptr) return end_together();
  is_connected_ = is_connected_ && !peers_;
  end_by(board.meeting.error());
}

// Errors of the others behind their last sum are found here.
void DeviceGroup::end_together() {
  if (!processes_) return;
  processes_->gather(Exchange::end, {});
  Bytes nothing;
  processes_->broadcast(Exchange::end, nothing);
}

void DeviceGroup::end_by(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    if (processes_) processes_->fail(e.code(), e.what());
    throw;
  } catch (const std::exception& e) {
    if (processes_) processes_->fail(ErrorCode::device, e.what());
    throw;
  }
}

}  // namespace mixtape
