#include "mixtape/backend/cuda/source.h"

#include <array>
#include <memory>

#include "mixtape/backend/cuda/shared_library.h"
#include "mixtape/core/error.h"
#include "mixtape/runtime/libraries.h"

namespace mixtape::cuda {
namespace {

using Program = struct ProgramTag*;

struct Nvrtc {
  int (*Version)(int*, int*);
  int (*CreateProgram)(Program*, const char*, const char*, int, const char* const*, const char* const*);
  int (*DestroyProgram)(Program*);
  int (*CompileProgram)(Program, int, const char* const*);
  int (*GetProgramLogSize)(Program, std::size_t*);
  int (*GetProgramLog)(Program, char*);
  int (*GetCUBINSize)(Program, std::size_t*);
  int (*GetCUBIN)(Program, char*);
};

const Nvrtc& nvrtc() {
  static const Nvrtc loaded = [] {
    static const SharedLibrary library({"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"});
    if (!library)
      fail(ErrorCode::not_supported, "register_source: a kernel's text needs NVRTC (", library.error(), ")");
    Nvrtc n{};
    const auto load = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.find(name));
      if (function == nullptr)
        fail(ErrorCode::not_supported, "register_source: NVRTC has no function ", name);
    };
    load(n.Version, "nvrtcVersion");
    load(n.CreateProgram, "nvrtcCreateProgram");
    load(n.DestroyProgram, "nvrtcDestroyProgram");
    load(n.CompileProgram, "nvrtcCompileProgram");
    load(n.GetProgramLogSize, "nvrtcGetProgramLogSize");
    load(n.GetProgramLog, "nvrtcGetProgramLog");
    load(n.GetCUBINSize, "nvrtcGetCUBINSize");
    load(n.GetCUBIN, "nvrtcGetCUBIN");
    return n;
  }();
  return loaded;
}

std::string nvrtc_version() {
  int major = 0, minor = 0;
  nvrtc().Version(&major, &minor);
  return str(major, ".", minor);
}

[[maybe_unused]] const bool nvrtc_registered = register_library({"NVRTC", nvrtc_version});

std::string log_of(Program program) {
  std::size_t size = 0;
  nvrtc().GetProgramLogSize(program, &size);
  std::string log(size, '\0');
  nvrtc().GetProgramLog(program, log.data());
  while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
  return log;
}

}  // namespace

std::string compile_source(const std::string& name, const std::string& text,
                           const std::string& architecture) {
  const Nvrtc& n = nvrtc();
  Program program = nullptr;
  if (n.CreateProgram(&program, text.c_str(), name.c_str(), 0, nullptr, nullptr) != 0)
    fail(ErrorCode::device, "register_source: NVRTC refuses kernel '", name, "'");
  const std::unique_ptr<Program, void (*)(Program*)> release(&program,
                                                             [](Program* p) { nvrtc().DestroyProgram(p); });
  const std::string target = "--gpu-architecture=" + architecture;
  const std::array<const char*, 3> options = {target.c_str(), "--std=c++17", "--fmad=false"};
  if (n.CompileProgram(program, static_cast<int>(options.size()), options.data()) != 0)
    fail(ErrorCode::invalid_argument, "register_source: kernel '", name,
         "' does not compile: ", log_of(program));
  std::size_t size = 0;
  n.GetCUBINSize(program, &size);
  std::string code(size, '\0');
  if (size == 0 || n.GetCUBIN(program, code.data()) != 0)
    fail(ErrorCode::device, "register_source: NVRTC gives no machine code for kernel '", name, "'");
  return code;
}

}  // namespace mixtape::cuda
