#include "mixtape/backend/cuda/upload.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <system_error>
#include <thread>

namespace mixtape::cuda {
namespace {

constexpr std::size_t kStage = std::size_t{4} << 20;
// One thread fills pinned memory at some 10 GB/s, the bus takes 25 to 60.
constexpr unsigned kMostLanes = 8;
// Below, a thread's start would not pay.
constexpr std::size_t kLeastShare = std::size_t{4} << 20;

}  // namespace

Upload::~Upload() {
  // At a process's end the driver may be gone before the device.
  if (stream_ == nullptr || driver().CtxSetCurrent(card_->context) != kSuccess) return;
  driver().StreamSynchronize(stream_);
  for (Lane& lane : lanes_) {
    for (Lane::Stage& s : lane.stages) {
      if (s.done != nullptr) driver().EventDestroy(s.done);
      if (s.data != nullptr) driver().MemFreeHost(s.data);
    }
  }
  for (const Event event : {before_, after_})
    if (event != nullptr) driver().EventDestroy(event);
  driver().StreamDestroy(stream_);
}

void Upload::open() {
  if (stream_ != nullptr) return;
  check(driver().StreamCreate(&stream_, kStreamNonBlocking), "making a stream");
  check(driver().EventCreate(&before_, kEventNoTiming), "making an event");
  check(driver().EventCreate(&after_, kEventNoTiming), "making an event");
  lanes_.resize(std::clamp(std::thread::hardware_concurrency() / 2, 1u, kMostLanes));
}

void Upload::run(DevicePointer to, const std::byte* from, std::size_t bytes) {
  open();
  const std::size_t threads = std::clamp(bytes / kLeastShare, std::size_t{1}, lanes_.size());
  if (threads == 1) return copy(lanes_[0], to, from, bytes, card_->stream);
  check(driver().EventRecord(before_, card_->stream), "writing");
  check(driver().StreamWaitEvent(stream_, before_, 0), "writing");
  const std::size_t share = (bytes + threads - 1) / threads;
  std::vector<std::exception_ptr> failures(threads);
  const auto copy_share = [&](std::size_t i) {
    try {
      card_->enter();
      const std::size_t begin = i * share;
      copy(lanes_[i], to + begin, from + begin, std::min(share, bytes - begin), stream_);
    } catch (...) {
      failures[i] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < threads; ++i) {
      try {
        others.emplace_back(copy_share, i);
      } catch (const std::system_error&) {  // no more threads
        copy_share(i);
      }
    }
    copy_share(0);
  }
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  check(driver().EventRecord(after_, stream_), "writing");
  check(driver().StreamWaitEvent(card_->stream, after_, 0), "writing");
}

void Upload::copy(Lane& lane, DevicePointer to, const std::byte* from, std::size_t bytes, Stream stream) {
  for (std::size_t at = 0, turn = 0; at < bytes; at += kStage, ++turn) {
    Lane::Stage& s = lane.stages[turn % 2];
    if (s.data == nullptr) check(driver().MemHostAlloc(&s.data, kStage, 0), "taking pinned memory");
    if (s.done == nullptr) check(driver().EventCreate(&s.done, kEventNoTiming), "making an event");
    const std::size_t count = std::min(kStage, bytes - at);
    check(driver().EventSynchronize(s.done), "writing");
    std::memcpy(s.data, from + at, count);
    check(driver().MemcpyHtoDAsync(to + at, s.data, count, stream), "writing");
    check(driver().EventRecord(s.done, stream), "writing");
  }
}

}  // namespace mixtape::cuda
