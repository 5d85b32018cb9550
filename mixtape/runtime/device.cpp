#include "mixtape/runtime/device.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "mixtape/core/error.h"
#include "mixtape/runtime/buffer.h"

namespace mixtape {
namespace {

struct BackendTable {
  std::recursive_mutex mutex;  // a backend that wraps another opens that one
  std::map<std::string, BackendFactory> factories;
  std::map<std::pair<std::string, int>, std::shared_ptr<Backend>> open;
};

BackendTable& table() {
  static BackendTable t;
  return t;
}

}  // namespace

bool register_backend(const std::string& kind, BackendFactory factory) {
  BackendTable& t = table();
  const std::lock_guard lock(t.mutex);
  return t.factories.emplace(kind, std::move(factory)).second;
}

std::vector<std::string> registered_backends() {
  BackendTable& t = table();
  const std::lock_guard lock(t.mutex);
  std::vector<std::string> kinds;
  for (const auto& [kind, factory] : t.factories) kinds.push_back(kind);
  return kinds;
}

void Backend::begin_recording() {
  fail(ErrorCode::not_supported, "record: device ", name(), " records no work");
}
std::shared_ptr<Replay> Backend::end_recording(bool) { return nullptr; }

Device Device::get(const std::string& kind, int index) {
  BackendTable& t = table();
  const std::lock_guard lock(t.mutex);
  auto& slot = t.open[{kind, index}];
  if (!slot) {
    const auto factory = t.factories.find(kind);
    if (factory == t.factories.end()) {
      fail(ErrorCode::not_supported, "device: '", kind, "' is not part of this build");
    }
    slot = factory->second(index);
  }
  return Device(slot);
}

Device Device::cpu() { return get("cpu", 0); }
Device Device::cuda(int index) { return get("cuda", index); }

Device Device::open(const std::string& name) {
  if (name == "auto") {
    try {
      return cuda(0);
    } catch (const Error&) {
      return cpu();
    }
  }
  if (name == "cpu") return cpu();
  if (name == "cuda") return cuda(0);
  if (name.size() == 6 && name.starts_with("cuda:") && name[5] >= '0' && name[5] <= '9')
    return cuda(name[5] - '0');
  const std::vector<std::string> kinds = registered_backends();
  if (std::find(kinds.begin(), kinds.end(), name) != kinds.end()) return get(name, 0);
  fail(ErrorCode::invalid_argument, "device: '", name, "' is unknown, expected cpu, cuda, cuda:N or auto");
}

std::string Device::name() const { return backend_->name(); }
std::string Device::description() const { return backend_->description(); }
MemoryStats Device::memory_stats() const { return backend_->memory_stats(); }
void Device::reset_peak() const { backend_->reset_peak(); }
void Device::poison_uninitialized(bool on) const { backend_->poison_uninitialized(on); }
KernelRegistry& Device::kernels() const { return backend_->kernels(); }

Buffer Device::alloc(DType dtype, const Shape& shape) const { return Buffer(*this, dtype, shape, true); }

Buffer Device::alloc_uninitialized(DType dtype, const Shape& shape) const {
  return Buffer(*this, dtype, shape, false);
}

}  // namespace mixtape
