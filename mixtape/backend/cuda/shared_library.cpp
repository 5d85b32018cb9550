#include "mixtape/backend/cuda/shared_library.h"

#include <dlfcn.h>

namespace mixtape::cuda {

SharedLibrary::SharedLibrary(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) return;
    if (const char* why = dlerror()) error_ = why;
  }
}

void* SharedLibrary::find(const char* symbol) const { return dlsym(handle_, symbol); }

}  // namespace mixtape::cuda
