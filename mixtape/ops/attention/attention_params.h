#pragma once

#include <cstdint>

namespace mixtape {

struct AttentionParams {
  std::int64_t batch;
  std::int64_t q_len;
  std::int64_t k_len;
  std::int64_t k_rows;  // from one sequence's keys to the next one's: k_len, or more in forward
  std::int64_t q_heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t sliding_window;  // 0: none
  float scale;
  std::uint32_t causal;
  std::uint32_t has_lengths;  // the last buffer read is i32 [batch]
  std::uint32_t has_sinks;    // behind what is always read is f32 [q_heads]
  // Backward, in bits, in the order in which kernels write where inputs are one variable:
  enum : std::uint32_t { dk = 1, dv = 2, dq = 4, dsinks = 8 };
  std::uint32_t wanted;
  std::uint32_t accumulate;
};

}  // namespace mixtape
