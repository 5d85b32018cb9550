#include "mixtape/runtime/device_group.h"

#include <algorithm>
#include <thread>

#include "mixtape/runtime/meeting.h"

namespace mixtape {
namespace {

// Elements of the buffer that gradients are gathered in, 64 MB: few sums of many instead of many of few.
constexpr std::int64_t kBucket = std::int64_t{1} << 24;

// What the members see of each other. What one has written here, the others read after the next meeting.
struct Board {
  explicit Board(std::size_t members) : meeting(members), values(members), parts(members) {}
  Meeting meeting;
  std::vector<std::vector<double>> values;
  std::vector<std::vector<float>> parts;  // the bucket of each
};

class GroupMember final : public Communicator {
 public:
  GroupMember(Board& board, std::size_t rank, PeerSums* peers) : board_(board), rank_(rank), peers_(peers) {}
  std::int64_t size() const override { return std::ssize(board_.values); }
  std::int64_t rank() const override { return static_cast<std::int64_t>(rank_); }

  void all_reduce_sum(std::span<double> values) override {
    board_.values[rank_].assign(values.begin(), values.end());
    board_.meeting.meet();
    for (const auto& others : board_.values) {
      require(others.size() == values.size(), "sum: members give ", values.size(), " and ", others.size(),
              " values, expected as many");
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = 0.0;
      for (const auto& others : board_.values) values[i] += others[i];
    }
    board_.meeting.meet();
  }

  void all_reduce_sum(CommandEncoder& encoder, const std::vector<Buffer>& buffers) override {
    if (size() == 1) return;
    std::int64_t total = 0;
    for (const Buffer& b : buffers) {
      require(b && b.dtype() == DType::f32, "sum: a buffer is ", b, ", expected f32");
      total += b.numel();
    }
    if (peers_) board_.meeting.meet();  // no card waits for one whose member has failed
    const Buffer bucket = encoder.device().alloc_uninitialized(DType::f32, {std::min(total, kBucket)});
    std::vector<Buffer> parts;  // of buffers: what is in the bucket, in order
    std::int64_t filled = 0;
    for (const Buffer& b : buffers) {
      for (std::int64_t begin = 0; begin < b.numel();) {
        const std::int64_t n = std::min(b.numel() - begin, kBucket - filled);
        parts.push_back(b.reshape({b.numel()}).slice(begin, begin + n));
        begin += n;
        filled += n;
        if (filled < kBucket) continue;
        reduce(encoder, parts, bucket);
        parts.clear();
        filled = 0;
      }
    }
    if (filled > 0) reduce(encoder, parts, bucket.slice(0, filled));
  }

 private:
  void reduce(CommandEncoder& encoder, const std::vector<Buffer>& parts, const Buffer& bucket) {
    const auto for_each_place = [&](const auto& action) {
      std::int64_t at = 0;
      for (const Buffer& part : parts) {
        action(part, bucket.slice(at, at + part.numel()));
        at += part.numel();
      }
    };
    for_each_place([&](const Buffer& part, const Buffer& place) { encoder.copy(part, place); });
    if (peers_) {
      encoder.commit();
      peers_->add_up(rank_, bucket.memory(), bucket.byte_offset(), static_cast<std::size_t>(bucket.numel()));
    } else {
      encoder.commit_and_wait();
      add_up_on_host(bucket);
    }
    for_each_place([&](const Buffer& part, const Buffer& place) { encoder.copy(place, part); });
  }

  // Each member adds up its share of the elements, in the order of the ranks, into the first one's.
  void add_up_on_host(const Buffer& bucket) {
    auto& parts = board_.parts;
    parts[rank_] = bucket.to_vector<float>();
    board_.meeting.meet();
    const std::size_t n = parts[rank_].size();
    for (const auto& part : parts)
      require(part.size() == n, "sum: members give ", n, " and ", part.size(), " elements, expected as many");
    for (std::size_t i = n * rank_ / parts.size(); i < n * (rank_ + 1) / parts.size(); ++i) {
      for (std::size_t m = 1; m < parts.size(); ++m) parts[0][i] += parts[m][i];
    }
    board_.meeting.meet();
    bucket.copy_from(std::span<const float>(parts[0]));
    board_.meeting.meet();
  }

  Board& board_;
  std::size_t rank_;
  PeerSums* peers_;
};

}  // namespace

DeviceGroup::DeviceGroup(std::vector<Device> devices) : devices_(std::move(devices)) {
  require(!devices_.empty(), "devices: found none, expected one or more");
  for (auto d = devices_.begin(); d != devices_.end(); ++d) {
    const bool is_again = std::find(devices_.begin(), d, *d) != d && !d->caps().has_host_memory;
    require(!is_again, "devices: ", d->name(), " is named twice, expected different ones");
  }
  connect();
}

DeviceGroup::~DeviceGroup() = default;

void DeviceGroup::connect() {
  is_connected_ = true;
  peers_ = nullptr;
  way_ = "host memory";
  if (devices_.size() == 1) return;
  try {
    peers_ = open_peer_sums(devices_);
    if (peers_) way_ = peers_->name();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_supported) throw;
    way_ += str(" (", error.what(), ")");
  }
}

std::string DeviceGroup::name() const {
  std::string all;
  for (const Device& d : devices_) all += (all.empty() ? "" : ",") + d.name();
  return all;
}

void DeviceGroup::run(const std::function<void(Communicator& communicator)>& work) {
  if (!is_connected_) connect();
  Board board(devices_.size());
  const auto leave_by = [&](const std::exception_ptr& error) {
    if (board.meeting.leave(error) && peers_) peers_->abort();
  };
  const auto take_part = [&](std::size_t rank) {
    GroupMember member(board, rank, peers_.get());
    try {
      work(member);
      board.meeting.leave(nullptr);
    } catch (const Meeting::Ended&) {
      leave_by(rank == 0 ? std::current_exception() : nullptr);
    } catch (...) {
      leave_by(std::current_exception());
    }
  };
  std::vector<std::thread> threads;
  try {
    for (std::size_t rank = 1; rank < devices_.size(); ++rank) threads.emplace_back(take_part, rank);
    take_part(0);
  } catch (...) {  // no thread to be had
    leave_by(std::current_exception());
  }
  for (std::thread& t : threads) t.join();
  if (board.meeting.error() == nullptr) return;
  is_connected_ = is_connected_ && !peers_;
  std::rethrow_exception(board.meeting.error());
}

}  // namespace mixtape
