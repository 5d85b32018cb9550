#include "mixtape/runtime/buffer.h"

#include <atomic>
#include <new>
#include <stdexcept>

namespace mixtape {
namespace {

std::atomic<std::uint64_t> writes = 0;

class WrappedMemory final : public Memory {
 public:
  WrappedMemory(void* data, std::size_t bytes, std::shared_ptr<void> owner)
      : data_(static_cast<std::byte*>(data)), bytes_(bytes), owner_(std::move(owner)) {}
  std::size_t bytes() const override { return bytes_; }
  std::byte* host_data() override { return data_; }

 private:
  std::byte* data_;
  std::size_t bytes_;
  std::shared_ptr<void> owner_;
};

// The bytes that shape and dtype take; throws out_of_memory where they can't be counted.
std::size_t checked_bytes(DType dtype, const Shape& shape) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::size_t>(shape.numel()), size_of(dtype), &bytes)) {
    fail(ErrorCode::out_of_memory, "alloc: ", dtype, shape, " has more bytes than 64 bits can count");
  }
  return bytes;
}

}  // namespace

std::uint64_t write_clock() { return writes.load(std::memory_order_relaxed); }

void Memory::mark_written() noexcept {
  last_write_.store(writes.fetch_add(1, std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

Buffer::Buffer(const Device& device, DType dtype, const Shape& shape, bool zero)
    : dtype_(dtype), shape_(shape) {
  const std::size_t bytes = checked_bytes(dtype, shape);
  try {
    device_ = std::make_shared<const Device>(device);
    memory_ = device.backend().allocate(bytes, zero);
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::out_of_memory, "alloc: no host memory for ", dtype, shape, " on ", device.name());
  } catch (const std::length_error&) {
    fail(ErrorCode::out_of_memory, "alloc: ", dtype, shape, " is more than ", device.name(), " can hold");
  }
}

Buffer Buffer::wrap(const Device& device, DType dtype, const Shape& shape, void* data,
                    std::shared_ptr<void> owner) {
  if (!device.caps().has_host_memory)
    fail(ErrorCode::not_supported, "wrap: ", device.name(), " does not work on host memory");
  const std::size_t bytes = checked_bytes(dtype, shape);
  require(data != nullptr || bytes == 0, "wrap: the memory of ", dtype, shape, " is null");
  require(reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) == 0, "wrap: the memory of ", dtype, shape,
          " is at ", data, ", expected a multiple of ", size_of(dtype), " bytes");
  Buffer wrapped;
  wrapped.device_ = std::make_shared<const Device>(device);
  wrapped.memory_ = std::make_shared<WrappedMemory>(data, bytes, std::move(owner));
  wrapped.dtype_ = dtype;
  wrapped.shape_ = shape;
  return wrapped;
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
  if (!a || !b || a.bytes() == 0 || b.bytes() == 0) return false;
  const bool is_one = &a.memory() == &b.memory();
  const auto base_a = reinterpret_cast<std::uintptr_t>(a.memory().host_data());
  const auto base_b = reinterpret_cast<std::uintptr_t>(b.memory().host_data());
  if (!is_one && (base_a == 0 || base_b == 0)) return false;
  const std::uintptr_t from_a = base_a + a.byte_offset(), from_b = base_b + b.byte_offset();
  return from_a < from_b + b.bytes() && from_b < from_a + a.bytes();
}

std::ostream& operator<<(std::ostream& out, const Buffer& buffer) {
  if (!buffer) return out << "null";
  return out << buffer.dtype() << buffer.shape();
}

}  // namespace mixtape
