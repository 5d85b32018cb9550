// Working memory that a thread keeps between kernels.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace mixtape::cpu {

// Grows and never shrinks; contents are undefined after every call. Declare as thread_local.
class Scratch {
 public:
  // `count` elements of a trivial type, aligned to 64 bytes. Throws std::bad_alloc.
  template <class T>
  T* get(std::size_t count) {
    const std::size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
    if (bytes > bytes_) {
      memory_.reset();
      bytes_ = 0;
      memory_.reset(std::aligned_alloc(64, bytes));
      if (!memory_) throw std::bad_alloc();
      bytes_ = bytes;
    }
    return static_cast<T*>(memory_.get());
  }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace mixtape::cpu
