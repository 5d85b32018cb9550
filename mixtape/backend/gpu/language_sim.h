// The simulator's face of the kernel language: pointers that check every access.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "mixtape/backend/sim/machine.h"
#include "mixtape/core/bf16.h"
#include "mixtape/core/f16.h"

#define MIXTAPE_DEVICE inline
#define MIXTAPE_KERNEL(name, max_threads, ...)                                           \
  static void name(__VA_ARGS__);                                                         \
  [[maybe_unused]] static const bool name##_is_registered =                              \
      ::mixtape::sim::register_kernel(#name, max_threads, ::mixtape::sim::caller(name)); \
  static void name(__VA_ARGS__)
#define MIXTAPE_KERNEL_BLOCKS(name, max_threads, blocks, ...) MIXTAPE_KERNEL(name, max_threads, __VA_ARGS__)
#define MIXTAPE_SHARED(type, name, count) \
  const Shared<type> name = ::mixtape::sim::shared_array<type>(#name, count)
#define MIXTAPE_SHARED_DYNAMIC(type, name) const Shared<type> name = ::mixtape::sim::shared_dynamic<type>()
#define MIXTAPE_UNROLL
#define MIXTAPE_UNROLL_4
#define MIXTAPE_ROLLED

namespace mixtape {

template <class T>
using Global = sim::Pointer<T>;
template <class T>
using Shared = sim::Pointer<T>;

constexpr int kLanes = sim::kLanes;

using f32 = float;

inline void await_earlier() { sim::await_earlier(); }

inline std::uint32_t bits_of(float v) { return std::bit_cast<std::uint32_t>(v); }
inline float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

inline float to_f32(float v) { return v; }
inline float to_f32(bf16 v) { return static_cast<float>(v); }
inline float to_f32(f16 v) { return static_cast<float>(v); }
template <class T>
T from_f32(float v) {
  return T(v);
}

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};
template <int N, class T>
Pack<std::remove_const_t<T>, N> load_pack(sim::Pointer<T> p) {
  Pack<std::remove_const_t<T>, N> pack;
  p.check_aligned(sizeof(T) * N > 16 ? 16 : sizeof(T) * N);
  for (int i = 0; i < N; ++i) pack.v[i] = p[i];
  return pack;
}
template <class T, int N>
void store_pack(sim::Pointer<T> p, const Pack<T, N>& pack) {
  p.check_aligned(sizeof(T) * N > 16 ? 16 : sizeof(T) * N);
  for (int i = 0; i < N; ++i) p[i] = pack.v[i];
}
template <class T>
bool is_aligned(sim::Pointer<T> p, int bytes) {
  return p.address() % static_cast<std::uint64_t>(bytes) == 0;
}

inline int thread_x() { return sim::here().thread[0]; }
inline int thread_y() { return sim::here().thread[1]; }
inline int threads_x() { return sim::here().threads[0]; }
inline int threads_y() { return sim::here().threads[1]; }
inline int block_x() { return sim::here().block[0]; }
inline int block_y() { return sim::here().block[1]; }
inline int block_z() { return sim::here().block[2]; }
inline int blocks_x() { return sim::here().blocks[0]; }
inline int blocks_y() { return sim::here().blocks[1]; }

inline void barrier(int line = __builtin_LINE()) { sim::block_barrier(line); }
inline void lane_barrier() { sim::lane_exchange(0, 0, true); }
template <class T>
T lane_shuffle(T v, int from) {
  static_assert(sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &v, sizeof v);
  bits = sim::lane_exchange(bits, from, false);
  std::memcpy(&v, &bits, sizeof v);
  return v;
}
inline int sim_lane() { return (thread_y() * threads_x() + thread_x()) % kLanes; }
template <class T>
T lane_xor(T v, int mask) {
  return lane_shuffle(v, sim_lane() ^ mask);
}
inline std::uint32_t lane_ballot(bool v) { return sim::lane_ballot(v); }
inline std::uint32_t lane_max_u32(std::uint32_t v) {
  for (int mask = kLanes / 2; mask > 0; mask /= 2) v = std::max(v, lane_xor(v, mask));
  return v;
}

inline std::uint32_t atomic_add(sim::Pointer<std::uint32_t> p, std::uint32_t v) {
  std::uint32_t* at = p.atomic();
  return std::exchange(*at, *at + v);
}
inline void atomic_min(sim::Pointer<std::uint64_t> p, std::uint64_t v) {
  std::uint64_t* at = p.atomic();
  if (v < *at) *at = v;
}

inline float exp_f32(float v) { return std::exp(v); }
inline float exp2_fast(float v) { return std::exp2(v); }
inline float exp_fast(float v) { return exp2_fast(v * 1.44269504f); }
inline float max_f32(float a, float b) { return std::fmax(a, b); }
inline float max_nan(float a, float b) { return (a > b || a != a) ? a : b; }
inline float log_f32(float v) { return std::log(v); }
inline float sqrt_f32(float v) { return std::sqrt(v); }
inline float tanh_f32(float v) { return std::tanh(v); }
inline float pow_f32(float a, float b) { return std::pow(a, b); }
inline float fma_f32(float a, float b, float c) { return std::fma(a, b, c); }
inline float abs_f32(float v) { return std::fabs(v); }
inline float floor_f32(float v) { return std::floor(v); }
inline float rint_f32(float v) { return std::nearbyint(v); }
inline float reciprocal_f32(float v) { return 1.0f / v; }
inline int count_bits(std::uint32_t v) { return __builtin_popcount(v); }
inline int lowest_bit(std::uint32_t v) { return __builtin_ffs(static_cast<int>(v)) - 1; }

}  // namespace mixtape
