// Words for threads of a block that do different work and tell each other how far they are, in kernels of *_cuda.cu: sm_90a.
//
//   init_arrivals(a, count)     one thread, and then a barrier: `count` arrivals at `a`, a word of shared memory, end a phase
//   arrive(a)                   what this thread, and before a lane_barrier its warp, did is done for those who wait
//   await_arrivals(a, parity)   until the phase of this parity has ended; phases are 0, 1, 0, 1 ...
//   have_arrived(a, parity)     whether it has
//   give_registers<n>(), take_registers<n>()
//                               from here on the threads of this warp group have n registers, fewer or more than before
#pragma once

#include "mixtape/backend/gpu/tensor.h"

namespace mixtape {

#if defined(__CUDACC__)
MIXTAPE_DEVICE void init_arrivals(std::uint64_t* a, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n\tfence.mbarrier_init.release.cluster;" ::"r"(
                   shared_address(a)),
               "r"(count)
               : "memory");
}
MIXTAPE_DEVICE void arrive(std::uint64_t* a) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(a)) : "memory");
}
MIXTAPE_DEVICE bool have_arrived(std::uint64_t* a, int parity) {
  std::uint32_t done;
  asm volatile(
      "{\n\t.reg .pred done;\n\tmbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, done;\n\t}"
      : "=r"(done)
      : "r"(shared_address(a)), "r"(parity)
      : "memory");
  return done != 0;
}
MIXTAPE_DEVICE void await_arrivals(std::uint64_t* a, int parity) {
  while (!have_arrived(a, parity)) {
  }
}
template <int Count>
MIXTAPE_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count>
MIXTAPE_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}
#else
inline void init_arrivals(Shared<std::uint64_t> a, int count) { sim::init_arrivals(a.address(), count); }
inline void arrive(Shared<std::uint64_t> a) { sim::arrive(a.address()); }
inline bool have_arrived(Shared<std::uint64_t> a, int parity) {
  return sim::have_arrived(a.address(), parity);
}
inline void await_arrivals(Shared<std::uint64_t> a, int parity) { sim::await_arrivals(a.address(), parity); }
template <int Count>
void give_registers() {}
template <int Count>
void take_registers() {}
#endif

}  // namespace mixtape
