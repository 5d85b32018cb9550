// What every dispatch did, for whoever wants to hear it: the library itself never prints.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mixtape/core/error.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

struct DispatchTrace {
  const Device& device;
  const Dispatch& dispatch;
  double seconds;                  // until the device was done; 0 where it was only recorded
  std::vector<std::string> notes;  // on GPUs: what was launched, and why nothing faster
};

// From now on each dispatch of every encoder is waited for and told to `sink`, one at a time. Null ends it.
using TraceSink = std::function<void(const DispatchTrace&)>;
void set_trace_sink(TraceSink sink);
bool is_tracing();

// For backends and launchers: a note on the dispatch that this thread runs. Nothing unless it is traced.
void add_trace_note(std::string note);
template <class... Parts>
void trace_note(const Parts&... parts) {
  if (is_tracing()) add_trace_note(str(parts...));
}

// For the encoder: `run` hands the dispatch to the device and waits for it, or only records it.
void trace(const Device& device, const Dispatch& dispatch, bool is_recorded,
           const std::function<void()>& run);

}  // namespace mixtape
