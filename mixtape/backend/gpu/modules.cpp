#include "mixtape/backend/gpu/modules.h"

#include <algorithm>
#include <map>

#include "mixtape/core/error.h"

namespace mixtape::gpu {
namespace {

std::map<std::string, Module>& modules() {
  static std::map<std::string, Module> kernels;
  return kernels;
}

}  // namespace

bool is_in_machine_code(const Module& module, int capability) {
  return std::count(module.machine_code.begin(), module.machine_code.end(), capability) > 0;
}

bool runs_on(const Module& module, int capability) {
  return is_in_machine_code(module, capability) || (module.ptx > 0 && module.ptx <= capability);
}

std::string kernels_on(int capability) {
  std::size_t in_machine_code = 0, absent = 0;
  int ptx = 0;
  for (const auto& [name, module] : modules()) {
    if (is_in_machine_code(module, capability)) {
      ++in_machine_code;
    } else if (runs_on(module, capability)) {
      ptx = module.ptx;
    } else {
      ++absent;
    }
  }
  if (in_machine_code == modules().size()) return "kernels in machine code";
  const std::string others = absent == 0 ? "" : str(", without ", absent, " for other cards alone");
  return str("kernels from PTX for ", ptx / 10, ".", ptx % 10, others);
}

bool register_module(const Module& module) {
  for (const char* kernel : module.kernels) modules().emplace(kernel, module);
  return true;
}

const Module* find_module(const std::string& kernel) {
  const auto found = modules().find(kernel);
  return found == modules().end() ? nullptr : &found->second;
}

std::vector<std::string> module_kernels() {
  std::vector<std::string> names;
  for (const auto& [name, module] : modules()) names.push_back(name);
  return names;
}

}  // namespace mixtape::gpu
