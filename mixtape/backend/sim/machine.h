// A GPU on the host: the blocks of a launch run one after the other, the threads of a block as fibers. Every
// access to memory is checked: bounds, alignment, reads of bytes that nothing wrote, and two threads that
// meet at one place without a barrier between them. The first fault ends the launch with Error{device}:
// kernel, block, thread, argument, byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "mixtape/core/error.h"

namespace mixtape::sim {

constexpr int kLanes = 32;

// The last accesses to a place. Times count barriers: of the block, and of the warp.
struct Trace {
  std::int32_t launch = -1;
  std::int32_t write_block = -1, write_thread = -1, write_time = -1, write_warp_time = -1;
  // -2 where several blocks, threads or warps read.
  std::int32_t read_block = -1, read_thread = -1, read_warp = -1, read_time = -1, read_warp_time = -1;
};

// Memory with its shadow: which bytes were written, and who was last at each pair of bytes.
struct Region {
  explicit Region(std::size_t count, bool is_shared_memory = false)
      : bytes(count), written(count, 0), traces((count + 1) / 2), is_shared(is_shared_memory) {}
  std::vector<std::byte> bytes;
  std::vector<std::uint8_t> written;
  std::vector<Trace> traces;
  bool is_shared;
};

// Where the running thread is.
struct Place {
  std::array<int, 3> thread{}, threads{}, block{}, blocks{};
};
const Place& here();

// Throws from within the running thread.
[[noreturn]] void fault(const std::string& what);

// A view of a region: the bytes from `begin` to `end`, standing at `at`.
class View {
 public:
  View() = default;
  // `name` must outlive the view.
  View(Region* region, std::int64_t begin, std::int64_t end, const char* name)
      : region_(region), begin_(begin), end_(end), at_(begin), name_(name) {}
  std::uint64_t address() const { return static_cast<std::uint64_t>(at_); }
  bool is_null() const { return region_ == nullptr; }

 protected:
  std::byte* check(std::int64_t at, std::size_t size, const char* access) const;
  void trace_read(std::int64_t at, std::size_t size) const;
  void trace_write(std::int64_t at, std::size_t size) const;
  void mark_written(std::int64_t at, std::size_t size) const;
  void check_written(std::int64_t at, std::size_t size) const;

  Region* region_ = nullptr;
  std::int64_t begin_ = 0, end_ = 0, at_ = 0;
  const char* name_ = "a null pointer";
};

template <class T>
class Pointer : public View {
  using Value = std::remove_const_t<T>;

 public:
  Pointer() = default;
  struct FromView {};
  Pointer(FromView, const View& view) : View(view) {}
  Pointer(std::nullptr_t) {}  // NOLINT: as a plain pointer
  operator Pointer<const T>() const requires(!std::is_const_v<T>) {
    return Pointer<const T>(typename Pointer<const T>::FromView(), *this);
  }
  explicit operator bool() const { return !is_null(); }

  // What p[i] gives: reads as a T, and where T is not const, is written as one.
  class Reference {
   public:
    Reference(const Pointer& p, std::int64_t at) : pointer_(p), at_(at) {}
    Reference(const Reference&) = default;
    operator Value() const { return pointer_.read(at_); }  // NOLINT
    const Reference& operator=(Value v) const requires(!std::is_const_v<T>) {
      pointer_.write(at_, v);
      return *this;
    }
    const Reference& operator=(const Reference& other) const { return *this = static_cast<Value>(other); }
    const Reference& operator+=(Value v) const {
      return *this = static_cast<Value>(static_cast<Value>(*this) + v);
    }

   private:
    const Pointer& pointer_;
    std::int64_t at_;
  };
  Reference operator[](std::int64_t i) const { return Reference(*this, at_ + i * std::int64_t{sizeof(T)}); }
  Reference operator*() const { return (*this)[0]; }

  Pointer operator+(std::int64_t n) const {
    Pointer moved = *this;
    moved.at_ += n * std::int64_t{sizeof(T)};
    return moved;
  }
  Pointer& operator+=(std::int64_t n) { return *this = *this + n; }

  void check_aligned(std::size_t bytes) const {
    if (address() % bytes != 0) fault(str(name_, ": byte ", at_, " is not aligned to ", bytes));
  }
  // For the atomic words, which no other access conflicts with.
  Value* atomic() const {
    std::byte* p = check(at_, sizeof(T), "atomic");
    check_written(at_, sizeof(T));
    return reinterpret_cast<Value*>(p);
  }

 private:
  Value read(std::int64_t at) const {
    const std::byte* p = check(at, sizeof(T), "read");
    check_written(at, sizeof(T));
    trace_read(at, sizeof(T));
    return *reinterpret_cast<const Value*>(p);
  }
  void write(std::int64_t at, Value v) const {
    std::byte* p = check(at, sizeof(T), "write");
    trace_write(at, sizeof(T));
    mark_written(at, sizeof(T));
    *reinterpret_cast<Value*>(p) = v;
  }
};

// Called by kernels through the kernel language.
void await_earlier();
void block_barrier(int line);
// Gives `value` to the warp, takes that of lane `from`. `orders` makes it a barrier for memory too.
std::uint64_t lane_exchange(std::uint64_t value, int from, bool orders);
std::uint32_t lane_ballot(bool vote);
View shared_view(const char* name, std::size_t bytes);
View shared_dynamic_view();

template <class T>
Pointer<T> shared_array(const char* name, std::size_t count) {
  return Pointer<T>(typename Pointer<T>::FromView(), shared_view(name, count * sizeof(T)));
}
template <class T>
Pointer<T> shared_dynamic() {
  return Pointer<T>(typename Pointer<T>::FromView(), shared_dynamic_view());
}

// A kernel behind one signature: parameter bytes and views of its pointer arguments.
using KernelBody = std::function<void(std::span<const std::byte>, std::span<const View>)>;

template <class P, class... Pointers>
KernelBody caller(void (*kernel)(P, Pointers...)) {
  return [kernel](std::span<const std::byte> params, std::span<const View> views) {
    if (params.size() != sizeof(P))
      fault(str("got ", params.size(), " parameter bytes, expected ", sizeof(P)));
    if (views.size() < sizeof...(Pointers))
      fault(str("got ", views.size(), " pointers, expected ", sizeof...(Pointers)));
    P p;
    std::memcpy(&p, params.data(), sizeof p);
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      kernel(p, Pointers(typename Pointers::FromView(), views[I])...);
    }
    (std::index_sequence_for<Pointers...>());
  };
}

bool register_kernel(const std::string& name, int max_threads, KernelBody body);
bool has_kernel(const std::string& name);
std::vector<std::string> kernels();

struct LaunchShape {
  std::array<std::uint32_t, 3> grid, block;
  std::uint32_t shared_bytes = 0;
};
// Runs every block; throws Error{device} at the first fault.
void run_kernel(const std::string& name, const LaunchShape& shape, std::span<const std::byte> params,
                const std::vector<View>& views);

}  // namespace mixtape::sim
