// Words for clusters, in kernels of *_cuda.cu: 1 to 8 blocks that run at the same time and write into each
// other's shared memory. On the simulator a cluster is one block.
//
//   MIXTAPE_CLUSTER_KERNEL(name, size, threads, blocks, ...)
//                               as MIXTAPE_KERNEL; `size` blocks in a row of the grid form a cluster,
//                               `blocks` blocks share a multiprocessor
//   cluster_store(p, rank, v)   to where p points, in the shared memory of the cluster's block `rank`
//   cluster_arrive, cluster_wait
//                               a barrier of the cluster in two halves, of all its threads: what was stored
//                               before one's arrival is seen after the other's wait. One of them before the
//                               first cluster_store, so that every block has begun, one after the last
//   copy_pack_async(to, from)   16 bytes to shared memory
//   wait_packs()                this thread's copies have arrived
//   load_pack_or<N>(p, is_there, other)
//                               a pack of 16 bytes, or copies of `other`
//   hide(pack)                  what was made of the pack, and of memory, is made again: no register
//                               holds it meanwhile
#pragma once

#include "mixtape/backend/gpu/kernel_language.h"

#if defined(__CUDACC__)
#define MIXTAPE_CLUSTER_KERNEL(name, size, threads, blocks, ...) \
  extern "C" __global__ void __cluster_dims__(size, 1, 1) __launch_bounds__(threads, blocks) name(__VA_ARGS__)
#else
#define MIXTAPE_CLUSTER_KERNEL(name, size, threads, blocks, ...) MIXTAPE_KERNEL(name, threads, __VA_ARGS__)
#endif

namespace mixtape {

#if defined(__CUDACC__)
MIXTAPE_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive;" ::: "memory"); }
MIXTAPE_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait;" ::: "memory"); }
MIXTAPE_DEVICE void cluster_store(float* p, int rank, float v) {
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(p));
  asm volatile(
      "{\n\t.reg .u32 there;\n\tmapa.shared::cluster.u32 there, %0, %1;\n\t"
      "st.shared::cluster.f32 [there], %2;\n\t}" ::"r"(at),
      "r"(rank), "f"(v)
      : "memory");
}
template <class T>
MIXTAPE_DEVICE void copy_pack_async(T* to, const T* from) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
      "l"(__cvta_generic_to_global(from))
      : "memory");
}
// 16 bytes, or where there are none copies of `other`.
template <int N, class T>
MIXTAPE_DEVICE Pack<T, N> load_pack_or(const T* p, bool is_there, T other) {
  Pack<T, N> pack;
  std::uint32_t word;
  if constexpr (sizeof(T) == 4) {
    word = bits_of(other);
  } else {
    word = other.bits * 0x10001u;
  }
  uint4 w = make_uint4(word, word, word, word);
  if (is_there) w = *reinterpret_cast<const uint4*>(p);
  asm volatile("" : "+r"(w.x), "+r"(w.y), "+r"(w.z), "+r"(w.w));
  reinterpret_cast<uint4&>(pack) = w;
  return pack;
}
template <class T, int N>
MIXTAPE_DEVICE void hide(Pack<T, N>& pack) {
  static_assert(sizeof(pack) == 16);
  uint4& w = reinterpret_cast<uint4&>(pack);
  asm volatile("" : "+r"(w.x), "+r"(w.y), "+r"(w.z), "+r"(w.w)::"memory");
}
MIXTAPE_DEVICE void wait_packs() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#else
inline void cluster_arrive() {}
inline void cluster_wait() { barrier(); }
inline void cluster_store(Shared<float> p, int, float v) { p[0] = v; }
template <class T>
void copy_pack_async(Shared<T> to, Global<const T> from) {
  store_pack(to, load_pack<16 / sizeof(T)>(from));
}
template <int N, class T>
Pack<std::remove_const_t<T>, N> load_pack_or(sim::Pointer<T> p, bool is_there, std::remove_const_t<T> other) {
  if (is_there) return load_pack<N>(p);
  Pack<std::remove_const_t<T>, N> pack;
  std::fill_n(pack.v, N, other);
  return pack;
}
template <class T, int N>
void hide(Pack<T, N>&) {}
inline void wait_packs() {}
#endif

// The larger of each pair of values; a NaN is passed over.
template <class T, int N>
MIXTAPE_DEVICE Pack<T, N> max_packs(const Pack<T, N>& a, const Pack<T, N>& b) {
  Pack<T, N> pack;
  MIXTAPE_UNROLL
  for (int i = 0; i < N; ++i) pack.v[i] = from_f32<T>(max_f32(to_f32(a.v[i]), to_f32(b.v[i])));
  return pack;
}
#if defined(__CUDACC__)
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
template <class T, int N>
MIXTAPE_DEVICE float max_of(const Pack<T, N>& pack) {
  float max = to_f32(pack.v[0]);
  MIXTAPE_UNROLL
  for (int i = 1; i < N; ++i) max = max_f32(max, to_f32(pack.v[i]));
  return max;
}
template <int N, class T>
MIXTAPE_DEVICE Pack<T, N> pack_of(T v) {
  Pack<T, N> pack;
  MIXTAPE_UNROLL
  for (int i = 0; i < N; ++i) pack.v[i] = v;
  return pack;
}

constexpr int kClusterWarps = 16;  // of a block
constexpr int kClusterParts = 8 * kClusterWarps;

// A row that Size blocks share: each thread holds Held packs of it.
template <class T, int Size, int Held>
struct ClusterRow {
  static constexpr int kPack = 16 / static_cast<int>(sizeof(T));
  int row, rank;
  int first, step;      // this thread's packs begin at columns first + h * step
  int left;             // columns from the first on
  std::int64_t offset;  // of the first in the tensor

  MIXTAPE_DEVICE explicit ClusterRow(std::int64_t cols)
      : row(block_x() / Size),
        rank(block_x() % Size),
        first((rank * threads_x() + thread_x()) * kPack),
        step(Size * threads_x() * kPack),
        left(static_cast<int>(cols) - first),
        offset(row * cols + first) {}
  MIXTAPE_DEVICE bool has(int h) const { return h * step < left; }
};

// Gives a value of each warp, the same in its lanes, to all blocks of the cluster. Between a cluster_wait and
// a cluster_arrive.
template <int Size>
MIXTAPE_DEVICE void share_part(Shared<float> parts, int rank, float v) {
  const int part = rank * (block_threads() / kLanes) + warp();
  if (lane() < Size) cluster_store(parts + part, lane(), v);
}
// How many parts there are.
template <int Size>
MIXTAPE_DEVICE int part_count() {
  return Size * (block_threads() / kLanes);
}

}  // namespace mixtape
