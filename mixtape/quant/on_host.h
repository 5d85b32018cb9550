// Where host code reads the elements of a buffer.
#pragma once

#include "mixtape/runtime/buffer.h"

namespace mixtape {

// b itself where its memory is the host's, else a copy of it on Device::cpu(); null of null. The device's pending work
// must have been waited for.
Buffer on_host(const Buffer& b);

template <class T>
std::span<const T> host_span(const Buffer& host) {
  return {host.host_data<T>(), static_cast<std::size_t>(host.numel())};
}

}  // namespace mixtape
