// A point where threads wait for each other, and that none waits at in vain.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

#include "mixtape/core/error.h"

namespace mixtape {

class Meeting {
 public:
  struct Ended : Error {
    Ended() : Error(ErrorCode::interrupted, "sum: another member of the run has ended") {}
  };

  explicit Meeting(std::size_t members) : members_(members) {}

  // Comes back once all members have come. Where one has left, throws the error that it left by, or Ended.
  void meet();
  // This member comes no more; null: without an error. Of several errors the first one counts: returns whether it is
  // this one.
  bool leave(const std::exception_ptr& error);
  // That one; null: none.
  std::exception_ptr error() const;

 private:
  void tell();  // those that wait, under mutex_

  mutable std::mutex mutex_;
  // What is waited for is the next change. A condition variable built by g++ 12 would ask for that one's libstdc++,
  // which is newer than that of systems that the packages are for.
  std::atomic<std::uint32_t> changes_ = 0;
  std::size_t members_, here_ = 0;
  std::uint64_t round_ = 0;
  bool has_left_ = false;
  std::exception_ptr error_;
};

}  // namespace mixtape
