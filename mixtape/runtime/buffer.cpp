#include "mixtape/runtime/buffer.h"

#include <atomic>
#include <new>
#include <stdexcept>

namespace mixtape {
namespace {

std::atomic<std::uint64_t> writes = 0;

}  // namespace

std::uint64_t write_clock() { return writes.load(std::memory_order_relaxed); }

void Memory::mark_written() noexcept {
  last_write_.store(writes.fetch_add(1, std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

Buffer::Buffer(const Device& device, DType dtype, const Shape& shape, bool zero)
    : dtype_(dtype), shape_(shape) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::size_t>(shape.numel()), size_of(dtype), &bytes)) {
    fail(ErrorCode::out_of_memory, "alloc: ", dtype, shape, " has more bytes than 64 bits can count");
  }
  try {
    device_ = std::make_shared<const Device>(device);
    memory_ = device.backend().allocate(bytes, zero);
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::out_of_memory, "alloc: no host memory for ", dtype, shape, " on ", device.name());
  } catch (const std::length_error&) {
    fail(ErrorCode::out_of_memory, "alloc: ", dtype, shape, " is more than ", device.name(), " can hold");
  }
}

const Device& Buffer::device() const {
  require(device_ != nullptr, "buffer: null, expected an allocated buffer");
  return *device_;
}

Buffer Buffer::reshape(const Shape& shape) const {
  require(memory_ != nullptr, "reshape: buffer is null, expected ", shape.numel(), " elements for ", shape);
  require(shape.numel() == numel(), "reshape: ", *this, " has ", numel(), " elements, expected ",
          shape.numel(), " for ", shape);
  Buffer view = *this;
  view.shape_ = shape;
  return view;
}

Buffer Buffer::slice(std::int64_t begin, std::int64_t end) const {
  require(memory_ != nullptr, "slice: buffer is null, expected an allocated buffer");
  require(shape_.rank() > 0, "slice: ", *this, " has no axis to slice");
  require(0 <= begin && begin <= end && end <= shape_[0], "slice: [", begin, ",", end,
          ") is outside the first axis of ", *this);
  Buffer view = *this;
  view.shape_ = shape_.with(0, end - begin);
  const std::int64_t row = shape_[0] == 0 ? 0 : numel() / shape_[0];
  view.offset_ += static_cast<std::size_t>(begin * row) * size_of(dtype_);
  return view;
}

void Buffer::read_bytes(void* host) const {
  if (bytes() > 0) device().backend().read(*memory_, offset_, host, bytes());
}

void Buffer::write_bytes(const void* host) const {
  if (bytes() == 0) return;
  device().backend().write(*memory_, offset_, host, bytes());
  memory_->mark_written();
}

std::byte* Buffer::host_bytes() const {
  require(memory_ != nullptr, "buffer: null, expected an allocated buffer");
  std::byte* base = memory_->host_data();
  if (base == nullptr) {
    fail(ErrorCode::not_supported, "buffer: memory of device ", device().name(), " has no host pointer");
  }
  return base + offset_;
}

void Buffer::check_dtype(DType wanted) const {
  require(memory_ != nullptr, "buffer: null, expected an allocated buffer");
  require(dtype_ == wanted, "buffer: ", *this, " holds ", dtype_, ", expected ", wanted);
}

void Buffer::check_count(std::int64_t count) const {
  require(count == numel(), "buffer: got ", count, " values, expected ", numel(), " for ", *this);
}

bool overlap(const Buffer& a, const Buffer& b) {
  if (!a || !b || &a.memory() != &b.memory() || a.bytes() == 0 || b.bytes() == 0) return false;
  return a.byte_offset() < b.byte_offset() + b.bytes() && b.byte_offset() < a.byte_offset() + a.bytes();
}

std::ostream& operator<<(std::ostream& out, const Buffer& buffer) {
  if (!buffer) return out << "null";
  return out << buffer.dtype() << buffer.shape();
}

}  // namespace mixtape
