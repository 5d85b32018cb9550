// CUDA's face of the words for products of a warp group; sm_90a.
#pragma once

#include "mixtape/backend/gpu/group_products.h"

namespace mixtape {

// How the matrix units find a tile: its address, the strides between panels and between groups of 8 rows, in 16 bytes,
// and the swizzle of 128 bytes. Where it begins within the tile is added last: for several products of a tile that is all
// that differs.
template <class T>
MIXTAPE_DEVICE unsigned long long panel_descriptor(const InPanels<T>& in) {
  const unsigned address = (shared_address(in.tile) & 0x3ffffu) >> 4;
  const unsigned long long panels = static_cast<unsigned>(in.rows * kPanel * 2 / 16),
                           groups = 8 * kPanel * 2 / 16;
  const unsigned long long of_tile = address | panels << 16 | groups << 32 | 1ull << 62;
  return of_tile +
         static_cast<unsigned>(in.col / kPanel * in.rows * kPanel + in.row * kPanel + in.col % kPanel) / 8;
}

#define MIXTAPE_C4(j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define MIXTAPE_C32                                                                                        \
  MIXTAPE_C4(0), MIXTAPE_C4(1), MIXTAPE_C4(2), MIXTAPE_C4(3), MIXTAPE_C4(4), MIXTAPE_C4(5), MIXTAPE_C4(6), \
      MIXTAPE_C4(7)
#define MIXTAPE_C64                                                                                          \
  MIXTAPE_C32, MIXTAPE_C4(8), MIXTAPE_C4(9), MIXTAPE_C4(10), MIXTAPE_C4(11), MIXTAPE_C4(12), MIXTAPE_C4(13), \
      MIXTAPE_C4(14), MIXTAPE_C4(15)

template <class T, int N>
struct GroupProduct;
#define MIXTAPE_GROUP_PRODUCT(T, N, VALUES, SUMS, A, B, KEEPS, A0, A1, A2, A3, WB)                          \
  template <>                                                                                               \
  struct GroupProduct<T, N> {                                                                               \
    template <int DenseA, int DenseB>                                                                       \
    MIXTAPE_DEVICE static void rows(float (&c)[N / 8][4], unsigned long long a, unsigned long long b,       \
                                    int keeps) {                                                            \
      asm volatile("{.reg .pred p; setp.ne.b32 p, " KEEPS ", 0; wgmma.mma_async.sync.aligned.m64n" #N       \
                   "k16.f32." #T "." #T " {" SUMS "}, " A ", " B ", p, 1, 1, " A3 ", " WB ";}"              \
                   : VALUES                                                                                 \
                   : "l"(a), "l"(b), "r"(keeps), "n"(DenseA), "n"(DenseB));                                 \
    }                                                                                                       \
    MIXTAPE_DEVICE static void weights(float (&c)[N / 8][4], const std::uint32_t (&a)[4],                   \
                                       unsigned long long b) {                                              \
      asm volatile("{.reg .pred p; setp.eq.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T \
                   "." #T " {" SUMS "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " WB ", p, 1, 1, 1;}"             \
                   : VALUES                                                                                 \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                   \
    }                                                                                                       \
  };
#define MIXTAPE_SUMS32                                                     \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define MIXTAPE_SUMS64                                                               \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
MIXTAPE_GROUP_PRODUCT(bf16, 64, MIXTAPE_C32, MIXTAPE_SUMS32, "%32", "%33", "%34", "%32", "%33", "%34", "%35",
                      "%36")
MIXTAPE_GROUP_PRODUCT(bf16, 128, MIXTAPE_C64, MIXTAPE_SUMS64, "%64", "%65", "%66", "%64", "%65", "%66", "%67",
                      "%68")
MIXTAPE_GROUP_PRODUCT(f16, 64, MIXTAPE_C32, MIXTAPE_SUMS32, "%32", "%33", "%34", "%32", "%33", "%34", "%35",
                      "%36")
MIXTAPE_GROUP_PRODUCT(f16, 128, MIXTAPE_C64, MIXTAPE_SUMS64, "%64", "%65", "%66", "%64", "%65", "%66", "%67",
                      "%68")
#undef MIXTAPE_GROUP_PRODUCT
#undef MIXTAPE_SUMS32
#undef MIXTAPE_SUMS64
#undef MIXTAPE_C32
#undef MIXTAPE_C64
#undef MIXTAPE_C4

template <class T, int N, bool DenseA = false, bool DenseB = false>
MIXTAPE_DEVICE void multiply_group(float (&c)[N / 8][4], const InPanels<T>& a, const InPanels<T>& b,
                                   bool keeps) {
  GroupProduct<T, N>::template rows<DenseA, DenseB>(c, panel_descriptor(a), panel_descriptor(b),
                                                    keeps ? 1 : 0);
}
template <class T, int N>
MIXTAPE_DEVICE void multiply_group(float (&c)[N / 8][4], const std::uint32_t (&weights)[4],
                                   const InPanels<T>& b) {
  GroupProduct<T, N>::weights(c, weights, panel_descriptor(b));
}

// The compiler does not know that products still write to what an asm statement returned.
template <int Tiles>
MIXTAPE_DEVICE void settle(float (&c)[Tiles][4]) {
  MIXTAPE_UNROLL
  for (int j = 0; j < Tiles; ++j)
    asm volatile("" : "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])::"memory");
}
MIXTAPE_DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
MIXTAPE_DEVICE void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Groups, class... Sums>
MIXTAPE_DEVICE void wait_products(Sums&... sums) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Groups) : "memory");
  (settle(sums), ...);
}
MIXTAPE_DEVICE void publish_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace mixtape
