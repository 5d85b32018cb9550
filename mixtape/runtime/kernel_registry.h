// Kernels by name. Built-in ones come with the library; a user adds host functions or source text.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "mixtape/runtime/buffer.h"

namespace mixtape {

// Where a kernel reports a bad index. Keeps the lowest position, so that the report is the same on every run.
// Owned by an encoder; backends that learn of errors late hold it weakly.
class ErrorSlot : public std::enable_shared_from_this<ErrorSlot> {
 public:
  struct IndexError {
    std::string kernel;
    std::int64_t position = std::numeric_limits<std::int64_t>::max();
    std::int64_t value = 0;
    std::int64_t limit = 0;
  };
  // Called by kernels, from any thread.
  void report_index(const std::string& kernel, std::int64_t position, std::int64_t value, std::int64_t limit);
  // std::bad_alloc surfaces as out_of_memory.
  void report_exception(std::exception_ptr error);
  // To be called where a kernel's exception is caught: what is neither Error nor std::bad_alloc becomes an
  // Error of code `device` that names the kernel.
  void report_caught(const std::string& kernel);
  bool has_exception() const;
  // Throws what was reported first, and forgets it.
  void rethrow();

 private:
  mutable std::mutex mutex_;
  std::exception_ptr exception_;
  IndexError index_;
};

// Where an optional output stands among the `wanted` ones, which are handed over in the order of their bits.
inline std::size_t output_index(std::uint32_t wanted, std::uint32_t bit) {
  return static_cast<std::size_t>(std::popcount(wanted & (bit - 1)));
}

// What a host kernel is called with. Kernels parallelise themselves (backend/cpu/parallel.h).
struct HostCall {
  const std::string& kernel;
  const void* params_bytes;
  std::size_t params_size;
  const std::vector<Buffer>& reads;
  const std::vector<Buffer>& writes;
  ErrorSlot& errors;

  template <class P>
  const P& params() const {
    if (params_size != sizeof(P)) {
      fail(ErrorCode::invalid_argument, kernel, ": got ", params_size, " parameter bytes, expected ",
           sizeof(P));
    }
    return *static_cast<const P*>(params_bytes);
  }
  template <class T>
  const T* read(std::size_t i) const {
    return reinterpret_cast<const T*>(buffer_at(reads, "read", i).host_bytes());
  }
  template <class T>
  T* write(std::size_t i) const {
    return reinterpret_cast<T*>(buffer_at(writes, "write", i).host_bytes());
  }
  // Of optional outputs, as Gradients (autograd/gradients.h) hands them over: null where `bit` isn't wanted.
  template <class T>
  T* write_if(std::uint32_t wanted, std::uint32_t bit) const {
    return (wanted & bit) != 0 ? write<T>(output_index(wanted, bit)) : nullptr;
  }
  void report_index(std::int64_t position, std::int64_t value, std::int64_t limit) const {
    errors.report_index(kernel, position, value, limit);
  }

 private:
  const Buffer& buffer_at(const std::vector<Buffer>& buffers, const char* what, std::size_t i) const {
    require(i < buffers.size(), kernel, ": ", what, "(", i, ") was asked for, expected less than ",
            buffers.size(), ", what the dispatch holds");
    return buffers[i];
  }
};

using HostKernel = std::function<void(const HostCall&)>;

class KernelRegistry {
 public:
  virtual ~KernelRegistry() = default;
  virtual bool has(const std::string& name) const = 0;
  // Throws invalid_argument if the name is taken.
  virtual void register_host(const std::string& name, HostKernel kernel) = 0;
  // Throws not_supported where the device cannot compile source.
  virtual void register_source(const std::string& name, const std::string& text) = 0;
};

// The host kernels that come with the library enter themselves here before main.
bool register_builtin_host_kernel(const std::string& name, HostKernel kernel);
const HostKernel* find_builtin_host_kernel(const std::string& name);
std::vector<std::string> builtin_host_kernels();

#define MIXTAPE_JOIN_INNER(a, b) a##b
#define MIXTAPE_JOIN(a, b) MIXTAPE_JOIN_INNER(a, b)
// At namespace scope: MIXTAPE_HOST_KERNEL("softmax_forward_f32", softmax_forward<float>);
#define MIXTAPE_HOST_KERNEL(name, ...)                                    \
  [[maybe_unused]] static const bool MIXTAPE_JOIN(kernel_, __COUNTER__) = \
      ::mixtape::register_builtin_host_kernel(name, __VA_ARGS__)

}  // namespace mixtape
