// A driver that fails in one way, to see what the program says: compiled with one of -DTOO_OLD -DNO_CARD -DFULL
// -DLOST into libcuda.so.1. Nothing is computed.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { success = 0, out_of_memory = 2, no_device = 100, launch_failed = 719 };

#ifdef TOO_OLD
int cuDriverGetVersion(int* version) { return *version = 11040, success; }
#else
int cuDriverGetVersion(int* version) { return *version = 12080, success; }

static int nothing(void) { return success; }

static int init(unsigned flags) {
  (void)flags;
#ifdef NO_CARD
  return no_device;
#else
  return success;
#endif
}
static int error_string(int result, const char** text) {
  *text = result == no_device ? "no card was found" : result == launch_failed ? "the card was lost" : "other";
  return success;
}
static int device_count(int* count) { return *count = 1, success; }
static int device_name(char* name, int size, int device) {
  (void)device;
  return strncpy(name, "Fake card", (size_t)size), success;
}
static int attribute(int* value, int which, int device) {
  (void)device;
  return *value = which == 75 ? 9 : which == 76 ? 0 : which == 97 ? 232448 : 1, success;
}
static int memory_info(size_t* free, size_t* total) { return *free = 1 << 20, *total = 1 << 30, success; }
static int allocate(uint64_t* block, size_t bytes, void* pool, void* stream) {
  (void)pool, (void)stream;
#ifdef FULL
  if (bytes > 100000) return out_of_memory;
#endif
  static uint64_t next = 4096;
  *block = next;
  next += (bytes + 511) / 512 * 512;
  return success;
}
static int host_memory(void** data, size_t bytes, unsigned flags) {
  static char stages[16][4 << 20];
  static int turn;
  (void)bytes, (void)flags;
  return *data = stages[turn++ % 16], success;
}
static int synchronize(void* stream) {
  (void)stream;
#ifdef LOST
  static int calls;
  return ++calls > 3 ? launch_failed : success;
#else
  return success;
#endif
}
static int read_back(void* to, uint64_t from, size_t bytes, void* stream) {
  (void)from, (void)stream;
  return memset(to, 0xff, bytes), success;
}

int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
  static const struct {
    const char* name;
    void* function;
  } known[] = {{"cuInit", (void*)init},
               {"cuGetErrorString", (void*)error_string},
               {"cuDeviceGetCount", (void*)device_count},
               {"cuDeviceGetName", (void*)device_name},
               {"cuDeviceGetAttribute", (void*)attribute},
               {"cuMemGetInfo", (void*)memory_info},
               {"cuMemAllocFromPoolAsync", (void*)allocate},
               {"cuMemHostAlloc", (void*)host_memory},
               {"cuStreamSynchronize", (void*)synchronize},
               {"cuMemcpyDtoHAsync", (void*)read_back}};
  (void)version, (void)flags;
  *status = 0;
  *function = (void*)nothing;
  for (size_t i = 0; i < sizeof known / sizeof known[0]; ++i) {
    if (strcmp(name, known[i].name) == 0) *function = known[i].function;
  }
  return success;
}
#endif
