// The kernel language's third face: C++ for OpenCL, for a check of syntax and address spaces by clang. Metal
// has the same spaces. Nothing runs through it, so most words are only declared.
#pragma once

#define MIXTAPE_DEVICE inline
#define MIXTAPE_KERNEL(name, max_threads, ...) kernel void name(__VA_ARGS__)
#define MIXTAPE_KERNEL_BLOCKS(name, max_threads, blocks, ...) kernel void name(__VA_ARGS__)
#define MIXTAPE_SHARED(type, name, count) \
  local type name##_memory[count];        \
  const Shared<type> name = name##_memory
#define MIXTAPE_SHARED_DYNAMIC(type, name) MIXTAPE_SHARED(type, name, 1024)
#define MIXTAPE_UNROLL
#define MIXTAPE_UNROLL_4
#define MIXTAPE_ROLLED

namespace mixtape {

template <class T>
using Global = global T*;
template <class T>
using Shared = local T*;

constexpr int kLanes = 32;

using f32 = float;
struct bf16 {
  std::uint16_t bits;
};
struct f16 {
  std::uint16_t bits;
};

void await_earlier();
std::uint32_t bits_of(float v);
float float_of(std::uint32_t bits);
float to_f32(float v);
float to_f32(bf16 v);
float to_f32(f16 v);
template <class T>
T from_f32(float v);

template <class T, int N>
struct Pack {
  T v[N];
};
template <class T>
struct Plain {
  using Type = T;
};
template <class T>
struct Plain<const T> {
  using Type = T;
};
template <int N, class T>
Pack<typename Plain<T>::Type, N> load_pack(global T* p);
template <int N, class T>
Pack<typename Plain<T>::Type, N> load_pack(local T* p);
template <class T, int N>
void store_pack(global T* p, const Pack<T, N>& pack);
template <class T, int N>
void store_pack(local T* p, const Pack<T, N>& pack);
template <class T>
bool is_aligned(global T* p, int bytes);
template <class T>
bool is_aligned(local T* p, int bytes);

int thread_x();
int thread_y();
int threads_x();
int threads_y();
int block_x();
int block_y();
int block_z();
int blocks_x();
int blocks_y();

void barrier();
void lane_barrier();
template <class T>
T lane_shuffle(T v, int from);
template <class T>
T lane_xor(T v, int mask);
std::uint32_t lane_ballot(bool v);
std::uint32_t lane_max_u32(std::uint32_t v);
std::uint32_t atomic_add(global std::uint32_t* p, std::uint32_t v);
std::uint32_t atomic_add(local std::uint32_t* p, std::uint32_t v);
void atomic_min(global std::uint64_t* p, std::uint64_t v);

float exp_f32(float v);
float exp2_fast(float v);
float exp_fast(float v);
float max_f32(float a, float b);
float max_nan(float a, float b);
float log_f32(float v);
float sqrt_f32(float v);
float tanh_f32(float v);
float pow_f32(float a, float b);
float fma_f32(float a, float b, float c);
float abs_f32(float v);
float floor_f32(float v);
float rint_f32(float v);
float reciprocal_f32(float v);
int count_bits(std::uint32_t v);
int lowest_bit(std::uint32_t v);

}  // namespace mixtape
