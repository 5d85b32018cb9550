// Which GPU kernels an op's launcher chooses, as traces tell it.
#pragma once

#include <functional>
#include <string>

#include "mixtape/runtime/command_encoder.h"
#include "mixtape/runtime/trace.h"

namespace mixtape::testing {

// Whether what `encode` gives the device launches a kernel whose name begins so.
inline bool launches(const Device& device, const std::string& kernel,
                     const std::function<void(CommandEncoder&)>& encode) {
  bool found = false;
  CommandEncoder encoder(device);
  set_trace_sink([&](const DispatchTrace& t) {
    for (const std::string& note : t.notes) found = found || note.starts_with("launch " + kernel);
  });
  encode(encoder);
  encoder.commit_and_wait();
  set_trace_sink(nullptr);
  return found;
}

}  // namespace mixtape::testing
