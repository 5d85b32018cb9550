// Compiled GPU kernels that are part of the library: one module per kernel file.
#pragma once

#include <string>
#include <vector>

namespace mixtape::gpu {

struct Module {
  const char* name;
  const unsigned char* begin;
  const unsigned char* end;
  std::vector<const char*> kernels;
};

// Modules enter themselves here before main.
bool register_module(const Module& module);
// Null where no module has the kernel.
const Module* find_module(const std::string& kernel);
std::vector<std::string> module_kernels();

}  // namespace mixtape::gpu
