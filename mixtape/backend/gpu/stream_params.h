// How many packs of 16 bytes a thread of a stream kernel (streams.h) takes.
#pragma once

#include <cstdint>

namespace mixtape {

constexpr int stream_packs(int inputs) { return inputs == 1 ? 4 : 2; }

// Elements of `bytes` each that a block of 256 threads takes.
constexpr std::int64_t stream_block(int inputs, std::int64_t bytes) {
  return 256 * stream_packs(inputs) * (16 / bytes);
}

}  // namespace mixtape
