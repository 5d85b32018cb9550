#include "mixtape/runtime/meeting.h"

namespace mixtape {

void Meeting::tell() {
  ++changes_;
  changes_.notify_all();
}

void Meeting::meet() {
  std::unique_lock lock(mutex_);
  const std::uint64_t round = round_;
  if (!has_left_ && ++here_ == members_) {
    here_ = 0;
    ++round_;
    tell();
    return;
  }
  while (round_ == round && !has_left_) {
    const std::uint32_t seen = changes_;
    lock.unlock();
    changes_.wait(seen);
    lock.lock();
  }
  if (round_ != round) return;
  if (error_) std::rethrow_exception(error_);
  throw Ended();
}

bool Meeting::leave(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  has_left_ = true;
  tell();
  if (!error || error_) return false;
  error_ = error;
  return true;
}

std::exception_ptr Meeting::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

}  // namespace mixtape
