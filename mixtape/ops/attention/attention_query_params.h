#pragma once

namespace mixtape {

// What a block of attention_query_gpu.cu takes of a head's keys, and its threads.
inline constexpr int kQueryKeys = 256, kQueryThreads = 128;

}  // namespace mixtape
