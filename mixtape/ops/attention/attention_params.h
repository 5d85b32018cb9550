#pragma once

#include <cstdint>

namespace mixtape {

struct AttentionParams {
  std::int64_t batch;
  std::int64_t q_len;
  std::int64_t k_len;
  std::int64_t q_heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t sliding_window;  // 0: none
  float scale;
  std::uint32_t causal;
  std::uint32_t has_lengths;  // the last buffer read is i32 [batch]
  // Backward: bit 0 dq, bit 1 dk, bit 2 dv.
  std::uint32_t wanted;
  std::uint32_t accumulate;
};

}  // namespace mixtape
