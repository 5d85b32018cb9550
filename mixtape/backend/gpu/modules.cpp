#include "mixtape/backend/gpu/modules.h"

#include <map>

namespace mixtape::gpu {
namespace {

std::map<std::string, Module>& table() {
  static std::map<std::string, Module> kernels;
  return kernels;
}

}  // namespace

bool is_for_hopper(const Module& module) { return std::string(module.name).ends_with("_cuda"); }

bool register_module(const Module& module) {
  for (const char* kernel : module.kernels) table().emplace(kernel, module);
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
