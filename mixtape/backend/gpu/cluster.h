// Words for clusters, in kernels of *_cuda.cu: 1 to 8 blocks that run at the same time and write into each
// other's shared memory. On the simulator a cluster is one block.
//
//   MIXTAPE_CLUSTER_KERNEL(name, size, threads, blocks, ...)
//                               as MIXTAPE_KERNEL; `size` blocks in a row of the grid form a cluster,
//                               `blocks` blocks share a multiprocessor
//   ClusterMeeting<size, warps, count>   where the warps of a cluster's blocks give each other `count` values for
//                               each row
//   copy_pack_async(to, from)   16 bytes to shared memory
//   wait_packs()                this thread's copies have arrived
//   load_pack_or<N>(p, is_there, other)
//                               a pack of 16 bytes, or copies of `other`
//   hide(pack)                  what was made of the pack, and of memory, is made again: no register
//                               holds it meanwhile
#pragma once

#include "mixtape/backend/gpu/tensor.h"

#if defined(__CUDACC__)
#define MIXTAPE_CLUSTER_KERNEL(name, size, threads, blocks, ...) \
  extern "C" __global__ void __cluster_dims__(size, 1, 1) __launch_bounds__(threads, blocks) name(__VA_ARGS__)
#else
#define MIXTAPE_CLUSTER_KERNEL(name, size, threads, blocks, ...) MIXTAPE_KERNEL(name, threads, __VA_ARGS__)
#endif

namespace mixtape {

#if defined(__CUDACC__)
// All threads of the cluster.
MIXTAPE_DEVICE void cluster_barrier() {
  asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory");
}
// A value to the blocks of a cluster: to where p points, in the shared memory of block `rank`, whose `arrival` counts the
// bytes. Unlike a barrier of the cluster that waits for no store to device memory.
template <int Size>
struct ClusterMail {
  MIXTAPE_DEVICE static void init(std::uint64_t* arrival) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;" ::"r"(
                     shared_address(arrival))
                 : "memory");
  }
  MIXTAPE_DEVICE static void expect(std::uint64_t* arrival, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(arrival)),
                 "r"(bytes)
                 : "memory");
  }
  MIXTAPE_DEVICE static void send(float* p, std::uint64_t* arrival, int rank, float v) {
    asm volatile(
        "{\n\t.reg .u32 there, arrival;\n\tmapa.shared::cluster.u32 there, %0, %2;\n\t"
        "mapa.shared::cluster.u32 arrival, %1, %2;\n\t"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [there], %3, [arrival];\n\t}" ::"r"(
            shared_address(p)),
        "r"(shared_address(arrival)), "r"(rank), "f"(v)
        : "memory");
  }
  MIXTAPE_DEVICE static void await(std::uint64_t* arrival, int parity) {
    std::uint32_t done = 0;
    while (done == 0) {
      asm volatile(
          "{\n\t.reg .pred done;\n\tmbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n\t"
          "selp.u32 %0, 1, 0, done;\n\t}"
          : "=r"(done)
          : "r"(shared_address(arrival)), "r"(parity)
          : "memory");
    }
  }
};
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
inline void cluster_barrier() { barrier(); }
template <int Size>
struct ClusterMail;
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

// A cluster of one block has no other's memory to write to.
template <>
struct ClusterMail<1> {
  MIXTAPE_DEVICE static void init(Shared<std::uint64_t>) {}
  MIXTAPE_DEVICE static void expect(Shared<std::uint64_t>, int) {}
  MIXTAPE_DEVICE static void send(Shared<float> p, Shared<std::uint64_t>, int, float v) { p[0] = v; }
  MIXTAPE_DEVICE static void await(Shared<std::uint64_t>, int) { barrier(); }
};

// Rows that Size blocks share, one after the other: each thread holds Held packs of one.
template <class T, int Size, int Held>
struct ClusterRow {
  static constexpr int kPack = 16 / static_cast<int>(sizeof(T));
  int rank;
  int first, step;        // this thread's packs begin at columns first + h * step
  int left;               // columns from the first on
  std::int64_t row, end;  // the cluster's rows
  std::int64_t cols;

  MIXTAPE_DEVICE ClusterRow(std::int64_t rows, std::int64_t row_cols)
      : rank(block_x() % Size),
        first((rank * threads_x() + thread_x()) * kPack),
        step(Size * threads_x() * kPack),
        left(static_cast<int>(row_cols) - first),
        cols(row_cols) {
    const std::int64_t clusters = blocks_x() / Size, each = (rows + clusters - 1) / clusters;
    row = block_x() / Size * each;
    end = row + each < rows ? row + each : rows;
  }
  MIXTAPE_DEVICE bool has(int h) const { return h * step < left; }
  // Of this thread's first element of the current row, and of the next one.
  MIXTAPE_DEVICE std::int64_t offset() const { return row * cols + first; }
  MIXTAPE_DEVICE std::int64_t next_offset() const { return offset() + cols; }
  // Where this thread's pack h lies in a row's part in shared memory.
  MIXTAPE_DEVICE static int place(int h) { return (h * threads_x() + thread_x()) * kPack; }
};

// Values of every warp of a cluster, Count of each, in the shared memory of all its blocks of up to Warps warps: `parts`
// holds kFloats, `arrivals` two words. Two rows take turns with them: a block may be one ahead of others.
template <int Size, int Warps, int Count>
struct ClusterMeeting {
  static constexpr int kFloats = 2 * Count * Size * Warps;
  Shared<float> parts;
  Shared<std::uint64_t> arrivals;
  int rank, turn;

  MIXTAPE_DEVICE ClusterMeeting(Shared<float> all_parts, Shared<std::uint64_t> all_arrivals)
      : parts(all_parts), arrivals(all_arrivals), rank(block_x() % Size), turn(0) {
    if (flat_thread() < 2) ClusterMail<Size>::init(arrivals + flat_thread());
  }
  MIXTAPE_DEVICE int part_count() const { return Size * (block_threads() / kLanes); }
  // Parts of this turn.
  MIXTAPE_DEVICE Shared<float> of(int value) const {
    return parts + ((turn & 1) * Count + value) * (Size * Warps);
  }
  // A value of this warp, the same in its lanes.
  MIXTAPE_DEVICE void give(int value, float v) const {
    const int part = rank * (block_threads() / kLanes) + warp();
    if (lane() < Size) ClusterMail<Size>::send(of(value) + part, arrivals + (turn & 1), lane(), v);
  }
  // Until all values of all warps are there.
  MIXTAPE_DEVICE void await() const {
    if (flat_thread() == 0)
      ClusterMail<Size>::expect(arrivals + (turn & 1),
                                Count * part_count() * static_cast<int>(sizeof(float)));
    ClusterMail<Size>::await(arrivals + (turn & 1), (turn >> 1) & 1);
  }
  // body(i) for the parts that are this lane's.
  template <class Body>
  MIXTAPE_DEVICE void for_parts(const Body& body) const {
    MIXTAPE_UNROLL
    for (int k = 0; k < (Size * Warps + kLanes - 1) / kLanes; ++k) {
      const int i = k * kLanes + lane();
      if (i < part_count()) body(i);
    }
  }
};

}  // namespace mixtape
