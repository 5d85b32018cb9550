#include "mixtape/backend/cuda/driver.h"

#include "mixtape/backend/cuda/shared_library.h"
#include "mixtape/core/error.h"
#include "mixtape/runtime/libraries.h"

namespace mixtape::cuda {
namespace {

// The API version whose signatures driver.h writes down.
constexpr int kVersion = 12000;

// cuGetProcAddress gives the function of the asked version; a plain lookup would give each function's first
// one.
using GetAddress = Result (*)(const char*, void**, int, std::uint64_t, int*);

std::string version_text(int version) { return str(version / 1000, ".", version % 1000 / 10); }

Driver load() {
  static const SharedLibrary library({"libcuda.so.1", "libcuda.so"});
  if (!library) {
    const bool is_absent = library.error().find("No such file") != std::string::npos;
    fail(ErrorCode::not_supported, "cuda: no NVIDIA driver",
         is_absent ? "" : str(" (", library.error(), ")"));
  }
  auto get_version = reinterpret_cast<Result (*)(int*)>(library.find("cuDriverGetVersion"));
  Driver d;
  if (get_version == nullptr || get_version(&d.version) != kSuccess || d.version < kVersion) {
    fail(ErrorCode::not_supported, "cuda: the driver supports CUDA ", version_text(d.version), ", expected ",
         version_text(kVersion), " or newer");
  }
  const auto get = reinterpret_cast<GetAddress>(library.find("cuGetProcAddress_v2"));
  require(get != nullptr, "cuda: the driver has no cuGetProcAddress_v2");
  const auto find = [&](const char* name) {
    void* function = nullptr;
    int status = 0;
    if (get(name, &function, kVersion, 0, &status) != kSuccess || function == nullptr)
      fail(ErrorCode::not_supported, "cuda: the driver has no function ", name);
    return function;
  };
#define MIXTAPE_CUDA_LOAD(name, arguments) d.name = reinterpret_cast<Result(*) arguments>(find("cu" #name));
  MIXTAPE_CUDA_FUNCTIONS(MIXTAPE_CUDA_LOAD)
#undef MIXTAPE_CUDA_LOAD
  if (const Result result = d.Init(0); result != kSuccess) {
    const char* text = nullptr;
    d.GetErrorString(result, &text);
    fail(ErrorCode::not_supported, "cuda: the driver does not start: ", text ? text : "unknown error");
  }
  return d;
}

[[maybe_unused]] const bool driver_registered =
    register_library({"CUDA driver", [] { return "CUDA " + version_text(driver().version); }});

}  // namespace

const Driver& driver() {
  static const Driver loaded = load();  // tried again after a failure
  return loaded;
}

std::string words(Result result) {
  const char* text = nullptr;
  driver().GetErrorString(result, &text);
  return text ? str(text, " (", result, ")") : str("error ", result);
}

void check(Result result, const char* what) {
  if (result == kSuccess) return;
  fail(result == kOutOfMemory ? ErrorCode::out_of_memory : ErrorCode::device, "cuda: ", what, ": ",
       words(result));
}

}  // namespace mixtape::cuda
