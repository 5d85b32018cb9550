// What a backend has to provide: memory, a table of kernels, and a way to run one dispatch.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace mixtape {

struct Dispatch;
class ErrorSlot;
class KernelRegistry;

// One allocation. Destroying it gives the memory back.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::size_t bytes() const = 0;
  virtual std::byte* host_data() = 0;  // null where the host cannot address it

  // When an encoder or the host last wrote here, in ticks of the write clock; 0 is never. What a replay or a
  // host pointer writes is not counted.
  std::uint64_t last_write() const noexcept { return last_write_.load(std::memory_order_relaxed); }
  void mark_written() noexcept;

 private:
  std::atomic<std::uint64_t> last_write_ = 0;
};

// Counts the writes of all encoders and of the host.
std::uint64_t write_clock();

struct MemoryStats {
  std::size_t live_bytes = 0;
  std::size_t peak_bytes = 0;
};

// Work that was recorded once, to be run as often as wanted.
class Replay {
 public:
  virtual ~Replay() = default;
  // Enqueues the work again.
  virtual void run() = 0;
};

// In what devices differ, for those who choose sizes and dtypes.
struct DeviceCaps {
  bool has_host_memory = false;  // Buffer::host_bytes works
  int threads = 1;               // of the host that share its kernels
  // Logits are computed in f32 whatever the model's dtype: where bandwidth and matrix units don't gain from
  // 16 bits.
  bool wants_f32_logits = false;
  // A quantized weight that meets an x of that dtype may be rounded to it before they are multiplied.
  bool rounds_decoded_bf16 = false;
  bool rounds_decoded_f16 = false;
  std::int64_t logit_elements = 0;   // of the block of logits that is worked on at once
  std::int64_t most_row_blocks = 0;  // into which an op cuts its rows for sums over them
  std::int64_t least_block_rows = 0;

  // Rows whose share of such a sum is added up before the blocks are.
  std::int64_t rows_per_block(std::int64_t rows) const {
    return std::max(least_block_rows, (rows + most_row_blocks - 1) / most_row_blocks);
  }
};

// One device. Thread-safe; every method but `run` may be called from any thread at any time.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;         // "cpu", "cuda:0"
  virtual std::string description() const = 0;  // for people: the processor or card
  virtual DeviceCaps caps() const = 0;
  // Throws out_of_memory with the bytes asked for and the bytes live.
  virtual std::shared_ptr<Memory> allocate(std::size_t bytes, bool zero) = 0;
  virtual MemoryStats memory_stats() const = 0;
  virtual void reset_peak() = 0;
  // While on, memory that is not zero-filled starts as bytes 0xff (NaN in every value dtype): shows outputs
  // that a kernel did not write.
  virtual void poison_uninitialized(bool on) = 0;
  virtual KernelRegistry& kernels() = 0;
  // Enqueues; argument checks have passed. Errors met later go to the slot.
  virtual void run(const Dispatch& dispatch, ErrorSlot& errors) = 0;
  // Hands over what `run` only gathered. Backends that start work at once need nothing more.
  virtual void submit() {}
  virtual void synchronize() = 0;
  // Between the two calls, what one thread runs is recorded instead of done, and nothing may wait, read or
  // write. Memory allocated meanwhile is the recording's own: each replay finds it at the same place. Memory
  // from before is kept alive.
  virtual bool can_record() const { return false; }
  virtual void begin_recording();
  // Null where `keep` is false: the recording is dropped.
  virtual std::shared_ptr<Replay> end_recording(bool keep);
  virtual void read(Memory& memory, std::size_t offset, void* host, std::size_t bytes) = 0;
  virtual void write(Memory& memory, std::size_t offset, const void* host, std::size_t bytes) = 0;
};

// Backends enter themselves here before main; the factory throws Error to say why there is no such device.
using BackendFactory = std::function<std::shared_ptr<Backend>(int index)>;
// "auto" tries the kinds by falling priority; those of kNotAuto are only opened by name.
inline constexpr int kNotAuto = 0;
bool register_backend(const std::string& kind, int priority, BackendFactory factory);
// By falling priority.
std::vector<std::string> registered_backends();

}  // namespace mixtape
