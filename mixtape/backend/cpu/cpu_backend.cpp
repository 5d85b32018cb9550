// The CPU: pooled host memory, host kernels by name, every dispatch run as it comes.
#include <sys/utsname.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <mutex>

#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/pool.h"
#include "mixtape/core/counted.h"
#include "mixtape/runtime/backend.h"
#include "mixtape/runtime/command_encoder.h"
#include "mixtape/runtime/kernel_registry.h"

namespace mixtape::cpu {
namespace {

class HostMemory final : public Memory {
 public:
  HostMemory(std::shared_ptr<Pool> pool, std::size_t bytes) : pool_(std::move(pool)), bytes_(bytes) {
    data_ = pool_->allocate(bytes);
  }
  ~HostMemory() override { pool_->release(data_); }
  std::size_t bytes() const override { return bytes_; }
  std::byte* host_data() override { return data_; }

 private:
  std::shared_ptr<Pool> pool_;
  std::size_t bytes_;
  std::byte* data_;
};

class CpuKernels final : public KernelRegistry {
 public:
  bool has(const std::string& name) const override { return find(name) != nullptr; }
  void register_host(const std::string& name, HostKernel kernel) override {
    const std::lock_guard lock(mutex_);
    const bool is_new =
        find_builtin_host_kernel(name) == nullptr && user_.emplace(name, std::move(kernel)).second;
    require(is_new, "register_host: kernel '", name, "' exists already on cpu");
  }
  void register_source(const std::string& name, const std::string&) override {
    fail(ErrorCode::not_supported, "register_source: kernel '", name,
         "': cpu takes host functions, not source text");
  }
  const HostKernel* find(const std::string& name) const {
    if (const HostKernel* builtin = find_builtin_host_kernel(name)) return builtin;
    const std::lock_guard lock(mutex_);
    const auto found = user_.find(name);
    return found == user_.end() ? nullptr : &found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, HostKernel> user_;
};

std::string processor_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  // arm64's Linux gives numbers of maker and part alone.
  utsname system{};
  ::uname(&system);
  return str("unknown ", system.machine, " processor");
}

void fill_bytes(std::byte* data, int value, std::size_t bytes) {
  parallel_for(static_cast<std::int64_t>(bytes), std::int64_t{4} << 20,
               [&](std::int64_t begin, std::int64_t end) {
                 std::memset(data + begin, value, static_cast<std::size_t>(end - begin));
               });
}

class CpuBackend final : public Backend {
 public:
  std::string name() const override { return "cpu"; }
  std::string description() const override {
    return str(processor_name(), ", ", counted(thread_count(), "thread"));
  }
  // Blocks of logits that stay in the caches. Few blocks of rows, so that their sums stay small beside x, of
  // enough rows, so that they pay.
  DeviceCaps caps() const override {
    return {.has_host_memory = true,
            .threads = thread_count(),
            .wants_f32_logits = true,
            .rounds_decoded_bf16 = true,  // where has_fast_bf16()
            .logit_elements = std::int64_t{12} << 20,
            .most_row_blocks = 64,
            .least_block_rows = 32};
  }
  std::shared_ptr<Memory> allocate(std::size_t bytes, bool zero) override {
    auto memory = std::make_shared<HostMemory>(pool_, bytes);
    if (zero || poison_) fill_bytes(memory->host_data(), zero ? 0 : 0xff, bytes);
    return memory;
  }
  MemoryStats memory_stats() const override { return pool_->stats(); }
  void reset_peak() override { pool_->reset_peak(); }
  void poison_uninitialized(bool on) override { poison_ = on; }
  KernelRegistry& kernels() override { return kernels_; }
  // After an exception the rest of the work is skipped until wait has reported it.
  void run(const Dispatch& d, ErrorSlot& errors) override {
    if (errors.has_exception()) return;
    const HostKernel* kernel = kernels_.find(d.kernel);
    try {
      (*kernel)(HostCall{d.kernel, d.params.data(), d.params.size(), d.reads, d.writes, errors});
    } catch (...) {
      errors.report_caught(d.kernel);
    }
  }
  void synchronize() override {}
  void read(Memory& memory, std::size_t offset, void* host, std::size_t bytes) override {
    std::memcpy(host, memory.host_data() + offset, bytes);
  }
  void write(Memory& memory, std::size_t offset, const void* host, std::size_t bytes) override {
    std::memcpy(memory.host_data() + offset, host, bytes);
  }

 private:
  std::shared_ptr<Pool> pool_ = std::make_shared<Pool>();
  std::atomic<bool> poison_ = false;
  CpuKernels kernels_;
};

[[maybe_unused]] const bool registered = register_backend("cpu", 1, [](int index) {
  if (index > 0) fail(ErrorCode::not_supported, "cpu: processor ", index, " is not there, found 1");
  return std::make_shared<CpuBackend>();
});

}  // namespace
}  // namespace mixtape::cpu
