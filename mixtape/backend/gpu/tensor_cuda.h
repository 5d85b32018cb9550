// CUDA's face of the words for matrix units; sm_80 and later.
#pragma once

namespace mixtape {

MIXTAPE_DEVICE unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

template <class T>
MIXTAPE_DEVICE void load_matrices(std::uint32_t (&r)[4], const T* tile, int at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(tile) + 2 * static_cast<unsigned>(at))
               : "memory");
}
template <class T>
MIXTAPE_DEVICE void load_matrices_transposed(std::uint32_t (&r)[4], const T* tile, int at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(tile) + 2 * static_cast<unsigned>(at))
               : "memory");
}

template <class T>
MIXTAPE_DEVICE void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                 std::uint32_t b1);
#define MIXTAPE_MULTIPLY_ADD(T)                                                                   \
  template <>                                                                                     \
  MIXTAPE_DEVICE void multiply_add<T>(float(&c)[4], const std::uint32_t(&a)[4], std::uint32_t b0, \
                                      std::uint32_t b1) {                                         \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." #T "." #T                                        \
        ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "                                            \
        "{%0,%1,%2,%3};"                                                                          \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                          \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                          \
  }
MIXTAPE_MULTIPLY_ADD(bf16)
MIXTAPE_MULTIPLY_ADD(f16)
#undef MIXTAPE_MULTIPLY_ADD

template <class T>
MIXTAPE_DEVICE void copy_async(T* tile, int at, const T* from, bool is_valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(tile) + 2 * static_cast<unsigned>(at)),
                 "l"(__cvta_generic_to_global(from)), "r"(is_valid ? 16 : 0)
               : "memory");
}
MIXTAPE_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Groups>
MIXTAPE_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
}

template <class T>
MIXTAPE_DEVICE std::uint32_t pack_pair(float low, float high);
template <>
MIXTAPE_DEVICE std::uint32_t pack_pair<bf16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return static_cast<std::uint32_t>(__bfloat16_as_ushort(pair.x)) |
         static_cast<std::uint32_t>(__bfloat16_as_ushort(pair.y)) << 16;
}
template <>
MIXTAPE_DEVICE std::uint32_t pack_pair<f16>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return static_cast<std::uint32_t>(__half_as_ushort(pair.x)) |
         static_cast<std::uint32_t>(__half_as_ushort(pair.y)) << 16;
}
template <class T>
MIXTAPE_DEVICE std::uint32_t fma_pairs(std::uint32_t a, std::uint32_t b, std::uint32_t c);
#define MIXTAPE_FMA_PAIRS(T)                                                                     \
  template <>                                                                                    \
  MIXTAPE_DEVICE std::uint32_t fma_pairs<T>(std::uint32_t a, std::uint32_t b, std::uint32_t c) { \
    std::uint32_t r;                                                                             \
    asm("fma.rn." #T "x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));                   \
    return r;                                                                                    \
  }
MIXTAPE_FMA_PAIRS(bf16)
MIXTAPE_FMA_PAIRS(f16)
#undef MIXTAPE_FMA_PAIRS
MIXTAPE_DEVICE std::uint32_t and_or(std::uint32_t v, std::uint32_t mask, std::uint32_t bits) {
  std::uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(v), "r"(mask), "r"(bits));
  return r;
}
MIXTAPE_DEVICE int hidden(int v) {
  asm volatile("" : "+r"(v));
  return v;
}

}  // namespace mixtape
