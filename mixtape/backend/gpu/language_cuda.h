// CUDA's face of the kernel language.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define MIXTAPE_DEVICE __device__ __forceinline__
#define MIXTAPE_KERNEL(name, max_threads, ...) \
  extern "C" __global__ void __launch_bounds__(max_threads) name(__VA_ARGS__)
#define MIXTAPE_KERNEL_BLOCKS(name, max_threads, blocks, ...) \
  extern "C" __global__ void __launch_bounds__(max_threads, blocks) name(__VA_ARGS__)
#define MIXTAPE_SHARED(type, name, count)                                       \
  __shared__ __align__(16) unsigned char name##_memory[sizeof(type) * (count)]; \
  const Shared<type> name = reinterpret_cast<type*>(name##_memory)
#define MIXTAPE_SHARED_DYNAMIC(type, name)                                  \
  extern __shared__ __align__(1024) unsigned char mixtape_dynamic_shared[]; \
  const Shared<type> name = reinterpret_cast<type*>(mixtape_dynamic_shared)
#define MIXTAPE_UNROLL _Pragma("unroll")
#define MIXTAPE_UNROLL_4 _Pragma("unroll 4")
#define MIXTAPE_ROLLED _Pragma("unroll 1")

namespace mixtape {

template <class T>
using Global = T*;
template <class T>
using Shared = T*;

constexpr int kLanes = 32;

using f32 = float;
struct bf16 {
  std::uint16_t bits;
};
struct f16 {
  std::uint16_t bits;
};

// The next kernel's blocks may come as soon as there is room for them: they wait here.
MIXTAPE_DEVICE void await_earlier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

MIXTAPE_DEVICE std::uint32_t bits_of(float v) { return __float_as_uint(v); }
MIXTAPE_DEVICE float float_of(std::uint32_t bits) { return __uint_as_float(bits); }

MIXTAPE_DEVICE float to_f32(float v) { return v; }
// One instruction for either half of a register; a shift would take two for the upper one.
MIXTAPE_DEVICE float to_f32(bf16 v) {
  float r;
  asm("mov.b32 %0, {%1, %2};" : "=f"(r) : "h"(static_cast<std::uint16_t>(0)), "h"(v.bits));
  return r;
}
MIXTAPE_DEVICE float to_f32(f16 v) { return __half2float(__ushort_as_half(v.bits)); }

template <class T>
MIXTAPE_DEVICE T from_f32(float v);
template <>
MIXTAPE_DEVICE float from_f32<float>(float v) {
  return v;
}
template <>
MIXTAPE_DEVICE bf16 from_f32<bf16>(float v) {
  return bf16{__bfloat16_as_ushort(__float2bfloat16_rn(v))};
}
template <>
MIXTAPE_DEVICE f16 from_f32<f16>(float v) {
  return f16{__half_as_ushort(__float2half_rn(v))};
}

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};
// Packs of more than 16 bytes are moved 16 at a time.
template <int N, class T>
MIXTAPE_DEVICE Pack<T, N> load_pack(const T* p) {
  Pack<T, N> pack;
  constexpr int kBytes = sizeof(T) * N;
  if constexpr (kBytes >= 16) {
    for (int i = 0; i < kBytes / 16; ++i)
      reinterpret_cast<uint4*>(pack.v)[i] = reinterpret_cast<const uint4*>(p)[i];
  } else if constexpr (kBytes == 8) {
    *reinterpret_cast<uint2*>(pack.v) = *reinterpret_cast<const uint2*>(p);
  } else if constexpr (kBytes == 4) {
    *reinterpret_cast<unsigned*>(pack.v) = *reinterpret_cast<const unsigned*>(p);
  } else {
    for (int i = 0; i < N; ++i) pack.v[i] = p[i];
  }
  return pack;
}
template <class T, int N>
MIXTAPE_DEVICE void store_pack(T* p, const Pack<T, N>& pack) {
  constexpr int kBytes = sizeof(T) * N;
  if constexpr (kBytes >= 16) {
    for (int i = 0; i < kBytes / 16; ++i)
      reinterpret_cast<uint4*>(p)[i] = reinterpret_cast<const uint4*>(pack.v)[i];
  } else if constexpr (kBytes == 8) {
    *reinterpret_cast<uint2*>(p) = *reinterpret_cast<const uint2*>(pack.v);
  } else if constexpr (kBytes == 4) {
    *reinterpret_cast<unsigned*>(p) = *reinterpret_cast<const unsigned*>(pack.v);
  } else {
    for (int i = 0; i < N; ++i) p[i] = pack.v[i];
  }
}
template <class T>
MIXTAPE_DEVICE bool is_aligned(T* p, int bytes) {
  return reinterpret_cast<unsigned long long>(p) % static_cast<unsigned>(bytes) == 0;
}

MIXTAPE_DEVICE int thread_x() { return static_cast<int>(threadIdx.x); }
MIXTAPE_DEVICE int thread_y() { return static_cast<int>(threadIdx.y); }
MIXTAPE_DEVICE int threads_x() { return static_cast<int>(blockDim.x); }
MIXTAPE_DEVICE int threads_y() { return static_cast<int>(blockDim.y); }
MIXTAPE_DEVICE int block_x() { return static_cast<int>(blockIdx.x); }
MIXTAPE_DEVICE int block_y() { return static_cast<int>(blockIdx.y); }
MIXTAPE_DEVICE int block_z() { return static_cast<int>(blockIdx.z); }
MIXTAPE_DEVICE int blocks_x() { return static_cast<int>(gridDim.x); }
MIXTAPE_DEVICE int blocks_y() { return static_cast<int>(gridDim.y); }

MIXTAPE_DEVICE void barrier() { __syncthreads(); }
MIXTAPE_DEVICE void lane_barrier() { __syncwarp(); }
template <class T>
MIXTAPE_DEVICE T lane_shuffle(T v, int from) {
  return __shfl_sync(0xffffffffu, v, from);
}
template <class T>
MIXTAPE_DEVICE T lane_xor(T v, int mask) {
  return __shfl_xor_sync(0xffffffffu, v, mask);
}
MIXTAPE_DEVICE std::uint32_t lane_ballot(bool v) { return __ballot_sync(0xffffffffu, v); }
MIXTAPE_DEVICE std::uint32_t lane_max_u32(std::uint32_t v) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(0xffffffffu, v);
#else
  for (int mask = kLanes / 2; mask > 0; mask /= 2) v = max(v, lane_xor(v, mask));
  return v;
#endif
}

MIXTAPE_DEVICE std::uint32_t atomic_add(std::uint32_t* p, std::uint32_t v) { return atomicAdd(p, v); }
MIXTAPE_DEVICE void atomic_min(std::uint64_t* p, std::uint64_t v) {
  atomicMin(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(v));
}

MIXTAPE_DEVICE float exp_f32(float v) { return expf(v); }
MIXTAPE_DEVICE float exp2_fast(float v) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}
MIXTAPE_DEVICE float exp_fast(float v) { return exp2_fast(v * 1.44269504f); }
MIXTAPE_DEVICE float max_f32(float a, float b) { return fmaxf(a, b); }
// A NaN among the two wins.
MIXTAPE_DEVICE float max_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return (a > b || a != a) ? a : b;
#endif
}
// The larger of each pair of values; a NaN is passed over.
template <class T, int N>
MIXTAPE_DEVICE Pack<T, N> max_packs(const Pack<T, N>& a, const Pack<T, N>& b) {
  Pack<T, N> pack;
  for (int i = 0; i < N; ++i) pack.v[i] = from_f32<T>(max_f32(to_f32(a.v[i]), to_f32(b.v[i])));
  return pack;
}
#if __CUDA_ARCH__ >= 800
#define MIXTAPE_MAX_PACKS(T)                                                                  \
  MIXTAPE_DEVICE Pack<T, 8> max_packs(const Pack<T, 8>& a, const Pack<T, 8>& b) {             \
    Pack<T, 8> pack;                                                                          \
    const uint4 u = reinterpret_cast<const uint4&>(a), v = reinterpret_cast<const uint4&>(b); \
    uint4 w;                                                                                  \
    asm("max." #T "x2 %0, %1, %2;" : "=r"(w.x) : "r"(u.x), "r"(v.x));                         \
    asm("max." #T "x2 %0, %1, %2;" : "=r"(w.y) : "r"(u.y), "r"(v.y));                         \
    asm("max." #T "x2 %0, %1, %2;" : "=r"(w.z) : "r"(u.z), "r"(v.z));                         \
    asm("max." #T "x2 %0, %1, %2;" : "=r"(w.w) : "r"(u.w), "r"(v.w));                         \
    reinterpret_cast<uint4&>(pack) = w;                                                       \
    return pack;                                                                              \
  }
MIXTAPE_MAX_PACKS(bf16)
MIXTAPE_MAX_PACKS(f16)
#undef MIXTAPE_MAX_PACKS
#endif
MIXTAPE_DEVICE float log_f32(float v) { return logf(v); }
MIXTAPE_DEVICE float sqrt_f32(float v) { return sqrtf(v); }
MIXTAPE_DEVICE float tanh_f32(float v) { return tanhf(v); }
MIXTAPE_DEVICE float pow_f32(float a, float b) { return powf(a, b); }
MIXTAPE_DEVICE float fma_f32(float a, float b, float c) { return fmaf(a, b, c); }
MIXTAPE_DEVICE float abs_f32(float v) { return fabsf(v); }
MIXTAPE_DEVICE float floor_f32(float v) { return floorf(v); }
MIXTAPE_DEVICE float rint_f32(float v) { return rintf(v); }
MIXTAPE_DEVICE float reciprocal_f32(float v) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return fmaf(r, fmaf(-v, r, 1.0f), r);
}
MIXTAPE_DEVICE int count_bits(std::uint32_t v) { return __popc(v); }
MIXTAPE_DEVICE int lowest_bit(std::uint32_t v) { return __ffs(static_cast<int>(v)) - 1; }

}  // namespace mixtape
