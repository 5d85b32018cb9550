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
// Of a <op>_cuda.cu: holds Hopper's machine code alone.
bool is_for_hopper(const Module& module);
// Null where no module has the kernel.
const Module* find_module(const std::string& kernel);
std::vector<std::string> module_kernels();

}  // namespace mixtape::gpu
