// A device: where buffers live and kernels run. A cheap handle, safe to share between threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mixtape/core/dtype.h"
#include "mixtape/core/shape.h"
#include "mixtape/runtime/backend.h"

namespace mixtape {

class Buffer;

class Device {
 public:
  static Device cpu();
  // A registered backend's kind, alone or with an index: "cpu", "cuda", "cuda:12", in tests "sim"; or "auto",
  // the best there is. `passed_over` gets a line for each kind that auto tried before, which says why not.
  // Throws invalid_argument for an unknown name, and the backend's reason where there is no such device.
  static Device open(const std::string& name, std::vector<std::string>* passed_over = nullptr);

  std::string name() const;
  std::string description() const;
  DeviceCaps caps() const { return backend_->caps(); }

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
  static Device best(std::vector<std::string>* passed_over);
  std::shared_ptr<Backend> backend_;
};

}  // namespace mixtape
