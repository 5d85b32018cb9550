#include "mixtape/runtime/trace.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "mixtape/core/stopwatch.h"

namespace mixtape {
namespace {

struct Listener {
  std::mutex mutex;
  TraceSink sink;
  std::atomic<bool> is_there = false;
};

Listener& listener() {
  static Listener one;
  return one;
}

thread_local std::vector<std::string>* notes = nullptr;  // of the dispatch that runs

}  // namespace

void set_trace_sink(TraceSink sink) {
  Listener& l = listener();
  const std::lock_guard lock(l.mutex);
  l.is_there = static_cast<bool>(sink);
  l.sink = std::move(sink);
}

bool is_tracing() { return listener().is_there.load(std::memory_order_relaxed); }

void add_trace_note(std::string note) {
  if (notes != nullptr) notes->push_back(std::move(note));
}

void trace(const Device& device, const Dispatch& dispatch, bool is_recorded,
           const std::function<void()>& run) {
  std::vector<std::string> own;
  const auto before = std::exchange(notes, &own);
  const Stopwatch watch;
  try {
    run();
  } catch (...) {
    notes = before;
    throw;
  }
  notes = before;
  const double seconds = watch.seconds();
  Listener& l = listener();
  const std::lock_guard lock(l.mutex);
  if (l.sink) l.sink({device, dispatch, is_recorded ? 0.0 : seconds, std::move(own)});
}

}  // namespace mixtape
