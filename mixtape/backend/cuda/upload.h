// From the host to a card, through pinned memory; what is large on a stream of its own, beside what the card computes.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "mixtape/backend/cuda/card.h"

namespace mixtape::cuda {

// One at a time.
class Upload {
 public:
  explicit Upload(std::shared_ptr<Card> card) : card_(std::move(card)) {}
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // Returns when `from` may change. In the order of the card's stream, as if it were queued there: what was queued
  // before may be using the memory still.
  void run(DevicePointer to, const std::byte* from, std::size_t bytes);

 private:
  // Two pinned buffers that take turns: the copy of one overlaps the filling of the other.
  struct Lane {
    struct Stage {
      void* data = nullptr;
      Event done = nullptr;
    };
    Stage stages[2];
  };
  void open();
  void copy(Lane& lane, DevicePointer to, const std::byte* from, std::size_t bytes, Stream stream);

  std::shared_ptr<Card> card_;
  Stream stream_ = nullptr;
  Event before_ = nullptr, after_ = nullptr;
  std::vector<Lane> lanes_;
};

}  // namespace mixtape::cuda
