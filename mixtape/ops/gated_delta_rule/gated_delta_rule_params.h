#pragma once

#include <cstdint>

namespace mixtape {

inline constexpr int kDeltaChunk = 64;  // positions that are worked on at once
inline constexpr int kMostDeltaKeys = 256;

struct GatedDeltaRuleParams {
  std::int64_t batch;
  std::int64_t length;
  std::int64_t key_heads;
  std::int64_t value_heads;
  std::int64_t key_dim;
  std::int64_t value_dim;
  float scale;
  std::uint32_t has_initial;
  std::uint32_t keeps_states;  // forward
  std::uint32_t has_dfinal;
  // Backward, in bits:
  enum : std::uint32_t { dq = 1, dk = 2, dv = 4, dg = 8, dbeta = 16, dinitial = 32 };
  std::uint32_t wanted;
  std::uint32_t accumulate;

  constexpr std::int64_t chunks() const { return (length + kDeltaChunk - 1) / kDeltaChunk; }
  constexpr std::int64_t group() const { return value_heads / key_heads; }
  constexpr std::int64_t state_size() const { return value_dim * key_dim; }
};

}  // namespace mixtape
