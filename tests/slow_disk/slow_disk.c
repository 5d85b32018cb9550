// A disk on which each write takes SLOW_DISK_MS milliseconds, so that a test can meet the program while it writes a
// model: LD_PRELOAD of this, compiled with -shared -fPIC.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

ssize_t pwrite(int file, const void* data, size_t bytes, off_t offset) {
  ssize_t (*real)(int, const void*, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite");
  const char* asked = getenv("SLOW_DISK_MS");
  const long ms = asked ? atol(asked) : 0;
  const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&pause, NULL);
  return real(file, data, bytes, offset);
}
ssize_t pwrite64(int file, const void* data, size_t bytes, off_t offset) { return pwrite(file, data, bytes, offset); }
