#include "mixtape/backend/gpu/modules.h"

#include <map>

namespace mixtape::gpu {
namespace {

// Where a Hopper file and a common one have a kernel of one name, the Hopper file's counts.
std::map<std::string, Module>& table() {
  static std::map<std::string, Module> kernels;
  return kernels;
}

bool is_for_cuda_only(const Module& module) { return std::string(module.name).ends_with("_cuda"); }

}  // namespace

bool register_module(const Module& module) {
  for (const char* kernel : module.kernels) {
    if (is_for_cuda_only(module)) {
      table().insert_or_assign(kernel, module);
    } else {
      table().emplace(kernel, module);
    }
  }
  return true;
}

const Module* find_module(const std::string& kernel) {
  const auto found = table().find(kernel);
  return found == table().end() ? nullptr : &found->second;
}

std::vector<std::string> module_kernels() {
  std::vector<std::string> names;
  for (const auto& [name, module] : table()) names.push_back(name);
  return names;
}

}  // namespace mixtape::gpu
