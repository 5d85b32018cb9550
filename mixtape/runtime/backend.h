// What a backend has to provide: memory, a table of kernels, and a way to run one dispatch.
#pragma once

#include <cstddef>
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
};

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

// One device. Thread-safe; every method but `run` may be called from any thread at any time.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;         // "cpu", "cuda:0"
  virtual std::string description() const = 0;  // for people: the processor or card
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

// Backends enter themselves here before main; the factory may throw Error to say why there is no device.
using BackendFactory = std::function<std::shared_ptr<Backend>(int index)>;
bool register_backend(const std::string& kind, BackendFactory factory);
std::vector<std::string> registered_backends();

}  // namespace mixtape
