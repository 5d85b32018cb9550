// One device's part of a group: its communicator, and what the members of a process see of each other.
#pragma once

#include <vector>

#include "mixtape/runtime/communicator.h"
#include "mixtape/runtime/meeting.h"
#include "mixtape/runtime/peer_sums.h"
#include "mixtape/runtime/processes.h"

namespace mixtape {

// What one member of this process has written here, the others read after the next meeting.
struct Board {
  explicit Board(std::size_t members) : meeting(members), values(members), parts(members) {}
  Meeting meeting;
  std::vector<std::vector<double>> values;
  std::vector<std::vector<float>> parts;  // the bucket of each; in the end the sum is in the first one
  std::vector<double> total;              // over all processes
};

class GroupMember final : public Communicator {
 public:
  // Number `index` of this process, whose first member is `first_rank` of `size`. What is passed must outlive it; peers:
  // null: through host memory. processes: null: this one alone.
  GroupMember(Board& board, std::size_t index, std::int64_t first_rank, std::int64_t size, PeerSums* peers,
              Processes* processes)
      : board_(board),
        index_(index),
        first_rank_(first_rank),
        size_(size),
        peers_(peers),
        processes_(processes) {}

  std::int64_t size() const override { return size_; }
  std::int64_t rank() const override { return first_rank_ + static_cast<std::int64_t>(index_); }
  void all_reduce_sum(std::span<double> values) override;
  void all_reduce_sum(CommandEncoder& encoder, const std::vector<Buffer>& buffers) override;

 private:
  void reduce(CommandEncoder& encoder, const std::vector<Buffer>& parts, const Buffer& bucket);
  void add_up_on_host(const Buffer& bucket);
  void add_up_parts();

  Board& board_;
  std::size_t index_;
  std::int64_t first_rank_, size_;
  PeerSums* peers_;
  Processes* processes_;
};

}  // namespace mixtape
