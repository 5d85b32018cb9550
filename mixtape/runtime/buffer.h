// A typed, shaped piece of device memory with shared ownership. Always contiguous.
#pragma once

#include <initializer_list>
#include <memory>
#include <ostream>
#include <span>
#include <vector>

#include "mixtape/core/dtype.h"
#include "mixtape/core/error.h"
#include "mixtape/core/shape.h"
#include "mixtape/runtime/device.h"

namespace mixtape {

// A handle: copies share the memory, and `const Buffer&` says nothing about the elements.
class Buffer {
 public:
  Buffer() = default;  // null: refused by every op
  Buffer(const Device& device, DType dtype, const Shape& shape, bool zero);
  // Copies `values` to a new buffer of the given shape; throws if the counts differ.
  template <class T>
  static Buffer from(const Device& device, const Shape& shape, std::span<const T> values) {
    Buffer b = device.alloc_uninitialized(dtype_of<T>(), shape);
    b.copy_from(values);
    return b;
  }
  template <class T>
  static Buffer from(const Device& device, const Shape& shape, const std::vector<T>& values) {
    dtype_of<T>();
    return from(device, shape, std::span<const T>(values));
  }
  // from(device, {3}, {1.5f, 2.0f, 3.0f}): f32; {1, 2, 3} is i32, {1u, 2u} u32.
  template <class T>
  static Buffer from(const Device& device, const Shape& shape, std::initializer_list<T> values) {
    return from(device, shape, std::span<const T>(values.begin(), values.size()));
  }

  // A view of the caller's host memory, nothing copied: elements one behind the other from `data`, which is aligned to
  // their size. `owner` is let go of with the last buffer of it. No statistics count it; a gradient that reads one buffer
  // does not see what is written through another one wrapped around the same memory. Throws invalid_argument for null or
  // misaligned data, not_supported where the device doesn't work on host memory.
  static Buffer wrap(const Device& device, DType dtype, const Shape& shape, void* data,
                     std::shared_ptr<void> owner);

  explicit operator bool() const { return memory_ != nullptr; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t numel() const { return shape_.numel(); }
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype_); }
  std::size_t byte_offset() const { return offset_; }
  const Device& device() const;
  Memory& memory() const { return *memory_; }
  bool is_unique() const { return memory_.use_count() == 1; }

  // Views of the same memory. Throw invalid_argument for a null buffer, or if the counts or bounds don't fit.
  Buffer reshape(const Shape& shape) const;
  Buffer slice(std::int64_t begin, std::int64_t end) const;  // along the first axis

  // The device's pending work must have been waited for. Throw if T or the count doesn't fit.
  template <class T>
  std::vector<T> to_vector() const {
    check_dtype(dtype_of<T>());
    std::vector<T> values(static_cast<std::size_t>(numel()));
    read_bytes(values.data());
    return values;
  }
  template <class T>
  void copy_from(std::span<const T> values) const {
    check_dtype(dtype_of<T>());
    check_count(static_cast<std::int64_t>(values.size()));
    write_bytes(values.data());
  }
  void read_bytes(void* host) const;         // bytes() bytes
  void write_bytes(const void* host) const;  // bytes() bytes

  // Throws not_supported where the memory is not host memory.
  std::byte* host_bytes() const;
  template <class T>
  T* host_data() const {
    check_dtype(dtype_of<T>());
    return reinterpret_cast<T*>(host_bytes());
  }

 private:
  void check_dtype(DType wanted) const;
  void check_count(std::int64_t count) const;

  std::shared_ptr<Memory> memory_;
  std::shared_ptr<const Device> device_;
  std::size_t offset_ = 0;
  DType dtype_ = DType::f32;
  Shape shape_;
};

// True where the two share at least one byte; memory that was wrapped twice is compared by its addresses.
bool overlap(const Buffer& a, const Buffer& b);

std::ostream& operator<<(std::ostream& out, const Buffer& buffer);  // f32[4,8], or null

}  // namespace mixtape
