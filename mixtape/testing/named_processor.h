// The CPU as a backend of another name, whose devices pass for cards: each has its number, and memory of its own.
#pragma once

#include <memory>
#include <string>

#include "mixtape/core/error.h"
#include "mixtape/runtime/backend.h"
#include "mixtape/runtime/device.h"

namespace mixtape::testing {

class NamedProcessor final : public Backend {
 public:
  NamedProcessor(std::string name, int index) : name_(std::move(name)), index_(index) {}
  std::string name() const override { return str(name_, ":", index_); }
  std::string description() const override { return cpu_.description(); }
  DeviceCaps caps() const override {
    DeviceCaps caps = cpu_.caps();
    caps.has_host_memory = false;
    return caps;
  }
  std::shared_ptr<Memory> allocate(std::size_t bytes, bool zero) override {
    return cpu_.allocate(bytes, zero);
  }
  MemoryStats memory_stats() const override { return cpu_.memory_stats(); }
  void reset_peak() override {}
  void poison_uninitialized(bool) override {}
  KernelRegistry& kernels() override { return cpu_.kernels(); }
  void run(const Dispatch& dispatch, ErrorSlot& errors) override { cpu_.run(dispatch, errors); }
  void synchronize() override {}
  void read(Memory& memory, std::size_t offset, void* host, std::size_t bytes) override {
    cpu_.read(memory, offset, host, bytes);
  }
  void write(Memory& memory, std::size_t offset, const void* host, std::size_t bytes) override {
    cpu_.write(memory, offset, host, bytes);
  }

 private:
  std::string name_;
  int index_;
  Backend& cpu_ = Device::cpu().backend();
};

}  // namespace mixtape::testing
