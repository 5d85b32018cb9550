#include "mixtape/runtime/device.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>

#include "mixtape/core/error.h"
#include "mixtape/runtime/buffer.h"

namespace mixtape {
namespace {

struct Kind {
  std::string name;
  int priority;
  BackendFactory open;
};

struct BackendTable {
  std::recursive_mutex mutex;  // a backend that wraps another opens that one
  std::vector<Kind> kinds;     // by falling priority, then by name
  std::map<std::pair<std::string, int>, std::shared_ptr<Backend>> open;

  const Kind* find(const std::string& name) const {
    const auto found =
        std::find_if(kinds.begin(), kinds.end(), [&](const Kind& k) { return k.name == name; });
    return found == kinds.end() ? nullptr : &*found;
  }
};

BackendTable& table() {
  static BackendTable t;
  return t;
}

// "cuda:12" is {"cuda", 12}; an index of -1 is none.
struct DeviceName {
  std::string kind;
  int index = 0;
};

DeviceName parse(const std::string& name) {
  const std::size_t colon = name.find(':');
  if (colon == std::string::npos) return {name, 0};
  int index = -1;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + colon + 1, end, index);
  const bool is_index = error == std::errc() && stop == end && name[colon + 1] != '-';
  return {name.substr(0, colon), is_index ? index : -1};
}

}  // namespace

bool register_backend(const std::string& kind, int priority, BackendFactory factory) {
  BackendTable& t = table();
  const std::lock_guard lock(t.mutex);
  if (t.find(kind) != nullptr) return false;
  t.kinds.push_back({kind, priority, std::move(factory)});
  std::sort(t.kinds.begin(), t.kinds.end(), [](const Kind& a, const Kind& b) {
    return a.priority != b.priority ? a.priority > b.priority : a.name < b.name;
  });
  return true;
}

std::vector<std::string> registered_backends() {
  BackendTable& t = table();
  const std::lock_guard lock(t.mutex);
  std::vector<std::string> kinds;
  for (const Kind& kind : t.kinds) kinds.push_back(kind.name);
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
    const Kind* found = t.find(kind);
    if (found == nullptr) {
      fail(ErrorCode::not_supported, "device: '", kind, "' is not part of this build");
    }
    slot = found->open(index);
  }
  return Device(slot);
}

Device Device::cpu() { return get("cpu", 0); }

Device Device::best(std::vector<std::string>* passed_over) {
  std::vector<std::string> reasons;
  BackendTable& t = table();
  const std::lock_guard lock(t.mutex);
  for (const Kind& kind : t.kinds) {
    if (kind.priority == kNotAuto) continue;
    try {
      const Device device = get(kind.name, 0);
      if (passed_over != nullptr) *passed_over = reasons;
      return device;
    } catch (const Error& error) {
      reasons.emplace_back(error.what());
    }
  }
  std::string all;
  for (const std::string& reason : reasons) all += "; " + reason;
  fail(ErrorCode::not_supported, "device: none can be opened", all);
}

Device Device::open(const std::string& name, std::vector<std::string>* passed_over) {
  if (name == "auto") return best(passed_over);
  const auto [kind, index] = parse(name);
  const std::vector<std::string> kinds = registered_backends();
  const bool is_known = std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  if (is_known && index >= 0) return get(kind, index);
  std::string list;
  for (const std::string& k : kinds) list += k + ", ";
  fail(ErrorCode::invalid_argument, "device: '", name, "' is unknown, expected ", list,
       "one of them with an index as in ", kinds.front(), ":1, or auto");
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
