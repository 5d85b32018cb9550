// A card: its context, the one stream that everything runs on, and its memory.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "mixtape/backend/cuda/driver.h"
#include "mixtape/runtime/backend.h"

namespace mixtape::cuda {

struct Card;

// Blocks of device memory that wait for their next use, by size: a step asks for the same sizes every time,
// and the driver takes microseconds to answer. All work is on one stream, so a block may be reused at once.
class Blocks {
 public:
  // 0 where no block of that size is there.
  DevicePointer take(std::size_t bytes);
  void keep(std::size_t bytes, DevicePointer block) {
    by_size_[bytes].push_back(block);
    bytes_ += bytes;
  }
  template <class Action>
  void release_all(const Action& action) {
    for (const auto& [bytes, blocks] : by_size_) {
      for (const DevicePointer block : blocks) action(bytes, block);
    }
    by_size_.clear();
    bytes_ = 0;
  }
  std::size_t bytes() const { return bytes_; }  // of all

 private:
  std::map<std::size_t, std::vector<DevicePointer>> by_size_;
  std::size_t bytes_ = 0;
};

// The blocks of one recording: what was taken while it was made goes back here, never to others, so that
// every replay may use it.
struct RecordedBlocks {
  explicit RecordedBlocks(std::shared_ptr<Card> owner) : card(std::move(owner)) {}
  ~RecordedBlocks();
  RecordedBlocks(const RecordedBlocks&) = delete;
  RecordedBlocks& operator=(const RecordedBlocks&) = delete;
  std::shared_ptr<Card> card;
  Blocks blocks;
};

struct Card {
  explicit Card(int index);
  void enter() const { check(driver().CtxSetCurrent(context), "entering the context"); }

  int index;
  DeviceHandle device = 0;
  Context context = nullptr;
  Stream stream = nullptr;
  Stream memory_stream = nullptr;  // asks for memory while `stream` records
  Pool pool = nullptr;
  std::string description;
  std::size_t bytes = 0;                // of memory, in all
  int capability = 0;                   // 90 is 9.0
  std::uint32_t most_shared_bytes = 0;  // of a block, dynamic
  std::mutex memory_mutex;              // guards what follows
  MemoryStats stats;
  Blocks kept;
  std::shared_ptr<RecordedBlocks> recording;  // set while work is recorded
};

class CardMemory final : public Memory {
 public:
  CardMemory(std::shared_ptr<Card> card, std::size_t bytes);
  ~CardMemory() override;
  std::size_t bytes() const override { return bytes_; }
  std::byte* host_data() override { return nullptr; }
  DevicePointer pointer() const { return pointer_; }
  bool belongs_to(const RecordedBlocks* recording) const { return home_.get() == recording; }

 private:
  std::shared_ptr<Card> card_;
  std::size_t bytes_;
  DevicePointer pointer_ = 0;
  std::shared_ptr<RecordedBlocks> home_;  // null: the card's own blocks
};

}  // namespace mixtape::cuda
