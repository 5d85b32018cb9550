// The part of the CUDA driver that mixtape uses, resolved at run time: no toolkit is needed to build, no
// driver to start. Names, types and numbers are those of the driver API's reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace mixtape::cuda {

using Result = int;
using DeviceHandle = int;
using DevicePointer = std::uint64_t;
using Context = struct ContextTag*;
using ModuleHandle = struct ModuleTag*;
using Function = struct FunctionTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;
using Pool = struct PoolTag*;
using Graph = struct GraphTag*;
using GraphExec = struct GraphExecTag*;

struct alignas(8) LaunchAttribute {
  int id = 0, padding = 0;
  union {
    int value;
    unsigned char bytes[64];
  };
};
// The kernel may start before those queued earlier have ended: it waits for them itself.
inline constexpr int kStartsEarly = 6;
struct LaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

inline constexpr Result kSuccess = 0;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNoBinaryForGpu = 209;
inline constexpr Result kUnsupportedPtx = 222;
inline constexpr int kAttributeMajor = 75;
inline constexpr int kAttributeMinor = 76;
inline constexpr int kAttributeShared = 97;  // of a block that asks for it
inline constexpr int kAttributePools = 115;
inline constexpr int kFunctionDynamicShared = 8;
inline constexpr int kPoolReleaseThreshold = 4;
inline constexpr unsigned kEventNoTiming = 2;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr int kCaptureRelaxed = 2;

// X(name, arguments): cu<name>.
#define MIXTAPE_CUDA_FUNCTIONS(X)                                         \
  X(Init, (unsigned))                                                     \
  X(DriverGetVersion, (int*))                                             \
  X(GetErrorString, (Result, const char**))                               \
  X(DeviceGetCount, (int*))                                               \
  X(DeviceGet, (DeviceHandle*, int))                                      \
  X(DeviceGetName, (char*, int, DeviceHandle))                            \
  X(DeviceGetAttribute, (int*, int, DeviceHandle))                        \
  X(DeviceGetDefaultMemPool, (Pool*, DeviceHandle))                       \
  X(DevicePrimaryCtxRetain, (Context*, DeviceHandle))                     \
  X(CtxSetCurrent, (Context))                                             \
  X(StreamCreate, (Stream*, unsigned))                                    \
  X(StreamSynchronize, (Stream))                                          \
  X(StreamBeginCapture, (Stream, int))                                    \
  X(StreamEndCapture, (Stream, Graph*))                                   \
  X(GraphInstantiateWithFlags, (GraphExec*, Graph, unsigned long long))   \
  X(GraphLaunch, (GraphExec, Stream))                                     \
  X(GraphDestroy, (Graph))                                                \
  X(GraphExecDestroy, (GraphExec))                                        \
  X(EventCreate, (Event*, unsigned))                                      \
  X(EventRecord, (Event, Stream))                                         \
  X(EventSynchronize, (Event))                                            \
  X(EventDestroy, (Event))                                                \
  X(StreamWaitEvent, (Stream, Event, unsigned))                           \
  X(StreamDestroy, (Stream))                                              \
  X(MemAllocFromPoolAsync, (DevicePointer*, std::size_t, Pool, Stream))   \
  X(MemFreeAsync, (DevicePointer, Stream))                                \
  X(MemPoolSetAttribute, (Pool, int, void*))                              \
  X(MemPoolTrimTo, (Pool, std::size_t))                                   \
  X(MemGetInfo, (std::size_t*, std::size_t*))                             \
  X(MemHostAlloc, (void**, std::size_t, unsigned))                        \
  X(MemFreeHost, (void*))                                                 \
  X(MemsetD8Async, (DevicePointer, unsigned char, std::size_t, Stream))   \
  X(MemcpyHtoDAsync, (DevicePointer, const void*, std::size_t, Stream))   \
  X(MemcpyDtoHAsync, (void*, DevicePointer, std::size_t, Stream))         \
  X(MemcpyDtoDAsync, (DevicePointer, DevicePointer, std::size_t, Stream)) \
  X(ModuleLoadData, (ModuleHandle*, const void*))                         \
  X(ModuleGetFunction, (Function*, ModuleHandle, const char*))            \
  X(FuncSetAttribute, (Function, int, int))                               \
  X(LaunchKernelEx, (const LaunchConfig*, Function, void**, void**))

struct Driver {
#define MIXTAPE_CUDA_MEMBER(name, arguments) Result(*name) arguments = nullptr;
  MIXTAPE_CUDA_FUNCTIONS(MIXTAPE_CUDA_MEMBER)
#undef MIXTAPE_CUDA_MEMBER
  int version = 0;  // 12080 is CUDA 12.8
};

// Throws not_supported with the reason: no driver, one that is too old, or no card.
const Driver& driver();

// Throws Error{device} (or out_of_memory) with `what` and the driver's words unless `result` is success.
void check(Result result, const char* what);
std::string words(Result result);

}  // namespace mixtape::cuda
