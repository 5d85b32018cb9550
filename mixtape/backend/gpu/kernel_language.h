// The words that GPU kernels are written in: the common subset of CUDA C++ and the Metal Shading Language.
//
//   MIXTAPE_KERNEL(scale_f32, 256, ScaleParams p, Global<const float> x, Global<float> y) {
//     await_earlier();
//     const std::int64_t i = global_thread();
//     if (i < p.count) y[i] = p.factor * x[i];
//   }
//
// A kernel takes one struct of fixed-width fields by value, then pointers. 256 is the most threads a block
// may have; MIXTAPE_KERNEL_BLOCKS(name, 256, 2, ...) keeps registers for 2 blocks per multiprocessor.
// Templates are fine; std, recursion, virtual, double, static and global variables are not.
//   await_earlier           every thread calls it before it touches device memory: the kernels queued before have ended and
//                           what they wrote is there. Blocks of a kernel may start while those of the one before end
//   Global<T>, Shared<T>    pointers to device memory and to memory that a block shares
//   MIXTAPE_SHARED(T, name, count)   at kernel scope: `name` is a Shared<T>; the count is a constant
//   MIXTAPE_SHARED_DYNAMIC(T, name)  the launch's shared_bytes
//   MIXTAPE_DEVICE          before a function that kernels call
//   MIXTAPE_UNROLL, MIXTAPE_ROLLED   before a loop
//   f32, bf16, f16          value types; to_f32(v), from_f32<T>(v): all arithmetic is in f32
//   Pack<T, N>              N values that are moved at once; load_pack<N>(p), store_pack(p, pack): p aligned
//                           to N values; is_aligned(p, bytes)
//   thread_x/y, block_x/y/z, threads_x/y (per block), blocks_x/y (per grid), flat_thread, block_threads
//   global_thread           block_x * threads_x + thread_x, 64 bits
//   lane, warp              within the group of kLanes = 32 threads that run together: by flat_thread
//   row_sum, row_lanes_sum (without scratch, up to 32), row_max, row_index   a row per threads_x threads: 1, 2, 4, 8, 16 or 32 with any threads_y that
//                           fills the warps, or one row per block
//   barrier                 every thread of the block; orders shared and device memory within the block
//   lane_barrier            the same for the 32 threads of a warp
//   lane_sum, lane_max (NaN wins), lane_max_u32, lane_shuffle(v, from), lane_xor(v, mask), lane_ballot(bool)
//                           every thread of the warp takes part
//   atomic_add (u32), atomic_min (u64)
//   reciprocal_f32(v)       1/v within one unit, for 2^-100 < |v| < 2^100
//   exp2_fast(v), exp_fast(v)   2^v and e^v within 2 units + |v| * 2^-24, 0 where that is below 2^-126
//   max_f32(a, b)           a NaN is passed over; max_packs(a, b): of each pair of values
//   exp_f32 log_f32 sqrt_f32 tanh_f32 pow_f32 fma_f32 max_nan abs_f32 floor_f32 rint_f32 bits_of float_of
// Products and sums are never contracted by the compiler: fma_f32 where one is meant.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#include "mixtape/backend/gpu/language_cuda.h"
#elif defined(__OPENCL_CPP_VERSION__)
#include "mixtape/backend/gpu/language_opencl.h"
#else
#include "mixtape/backend/gpu/language_sim.h"
#endif

namespace mixtape {

#if !defined(__CUDACC__)
template <class T, int N>
MIXTAPE_DEVICE Pack<T, N> max_packs(const Pack<T, N>& a, const Pack<T, N>& b) {
  Pack<T, N> pack;
  for (int i = 0; i < N; ++i) pack.v[i] = from_f32<T>(max_f32(to_f32(a.v[i]), to_f32(b.v[i])));
  return pack;
}
#endif

MIXTAPE_DEVICE std::int64_t global_thread() {
  return static_cast<std::int64_t>(block_x()) * threads_x() + thread_x();
}
MIXTAPE_DEVICE std::int64_t grid_threads() { return static_cast<std::int64_t>(blocks_x()) * threads_x(); }
MIXTAPE_DEVICE int flat_thread() { return thread_y() * threads_x() + thread_x(); }
MIXTAPE_DEVICE int block_threads() { return threads_x() * threads_y(); }
MIXTAPE_DEVICE int lane() { return flat_thread() % kLanes; }
MIXTAPE_DEVICE int warp() { return flat_thread() / kLanes; }

MIXTAPE_DEVICE float lane_sum(float v) {
  for (int mask = kLanes / 2; mask > 0; mask /= 2) v += lane_xor(v, mask);
  return v;
}

// Unsigned integers in the order of the values: -0 as +0, every NaN as the largest; 0 stands for no value.
MIXTAPE_DEVICE std::uint32_t order_key(float v) {
  const std::uint32_t bits = bits_of(v + 0.0f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0xffffffffu;
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
// The value that a key was made of, -0 as +0.
MIXTAPE_DEVICE float key_value(std::uint32_t key) {
  return float_of((key >> 31) != 0 ? key & 0x7fffffffu : ~key);
}
MIXTAPE_DEVICE float lane_max(float v) { return key_value(lane_max_u32(order_key(v))); }

// Sum and maximum over the block, the same value in every thread. `scratch` holds 32 floats; what was in it
// before must have been read by all.
MIXTAPE_DEVICE float block_sum(float v, Shared<float> scratch) {
  v = lane_sum(v);
  if (lane() == 0) scratch[warp()] = v;
  barrier();
  const int warps = (block_threads() + kLanes - 1) / kLanes;
  const float all = lane_sum(lane() < warps ? static_cast<float>(scratch[lane()]) : 0.0f);
  barrier();
  return all;
}
MIXTAPE_DEVICE float block_max(float v, Shared<float> scratch) {
  v = lane_max(v);
  if (lane() == 0) scratch[warp()] = v;
  barrier();
  const int warps = (block_threads() + kLanes - 1) / kLanes;
  const float all = lane_max(static_cast<float>(scratch[lane() < warps ? lane() : 0]));
  barrier();
  return all;
}

// Over the threads_x lanes that share a row: a power of two up to 32.
MIXTAPE_DEVICE float row_lanes_sum(float v) {
  for (int mask = threads_x() / 2; mask > 0; mask /= 2) v += lane_xor(v, mask);
  return v;
}
// Sum and maximum over a row that threads_x threads share: a power of two up to 32, or a whole block.
MIXTAPE_DEVICE float row_sum(float v, Shared<float> scratch) {
  return threads_x() > kLanes ? block_sum(v, scratch) : row_lanes_sum(v);
}
MIXTAPE_DEVICE float row_max(float v, Shared<float> scratch) {
  if (threads_x() > kLanes) return block_max(v, scratch);
  for (int mask = threads_x() / 2; mask > 0; mask /= 2) v = max_nan(v, lane_xor(v, mask));
  return v;
}
// The row of this thread: threads_y rows per block.
MIXTAPE_DEVICE std::int64_t row_index() {
  return static_cast<std::int64_t>(block_x()) * threads_y() + thread_y();
}

// Remembers the lowest position at which an index was out of range, with the index's 32 bits.
MIXTAPE_DEVICE void report_index(Global<std::uint64_t> errors, std::int64_t position, std::uint32_t value) {
  atomic_min(errors, (static_cast<std::uint64_t>(position) << 32) | value);
}

// The index types of an op's `is_signed` flag, in 64 bits.
MIXTAPE_DEVICE std::int64_t index_value(std::uint32_t bits, bool is_signed) {
  return is_signed ? static_cast<std::int64_t>(static_cast<std::int32_t>(bits))
                   : static_cast<std::int64_t>(bits);
}

}  // namespace mixtape

// One kernel per value type.
#define MIXTAPE_VALUE_KERNELS(X) X(f32) X(bf16) X(f16)
// One kernel per pair of value types.
#define MIXTAPE_VALUE_PAIRS(X) \
  X(f32, f32)                  \
  X(f32, bf16) X(f32, f16) X(bf16, f32) X(bf16, bf16) X(bf16, f16) X(f16, f32) X(f16, bf16) X(f16, f16)
