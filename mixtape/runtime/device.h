// A device: where buffers live and kernels run. A cheap handle, safe to share between threads.
#pragma once

#include <memory>
#include <string>

#include "mixtape/core/dtype.h"
#include "mixtape/core/shape.h"
#include "mixtape/runtime/backend.h"

namespace mixtape {

class Buffer;

class Device {
 public:
  static Device cpu();
  static Device cuda(int index);
  // "cpu", "cuda", "cuda:1", "auto": the best there is, or another registered backend's name (in tests
  // "sim"). Throws with the reason where there is none.
  static Device open(const std::string& name);

  std::string name() const;
  std::string description() const;

  // Zero-filled. Shapes with no elements are legal.
  Buffer alloc(DType dtype, const Shape& shape) const;
  // For outputs that are fully written.
  Buffer alloc_uninitialized(DType dtype, const Shape& shape) const;

  MemoryStats memory_stats() const;
  void reset_peak() const;
  // For tests: see Backend.
  void poison_uninitialized(bool on) const;
  KernelRegistry& kernels() const;
  Backend& backend() const { return *backend_; }

  friend bool operator==(const Device& a, const Device& b) { return a.backend_ == b.backend_; }

 private:
  explicit Device(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}
  static Device get(const std::string& kind, int index);
  std::shared_ptr<Backend> backend_;
};

}  // namespace mixtape
