// Compiled GPU kernels that are part of the library: one module per kernel file.
#pragma once

#include <string>
#include <vector>

namespace mixtape::gpu {

struct Module {
  const char* name;
  const unsigned char* begin;
  const unsigned char* end;
  // What the fatbin holds. Machine code runs on cards of exactly that compute capability (90 is 9.0), PTX is
  // compiled by the driver for any that is as new; 0 is none.
  std::vector<int> machine_code;
  int ptx;
  std::vector<const char*> kernels;
};

// Modules enter themselves here before main.
bool register_module(const Module& module);
bool runs_on(const Module& module, int capability);
bool is_in_machine_code(const Module& module, int capability);
// For people, what a card is served with: "kernels in machine code", or "kernels from PTX for 7.5, without 12
// for other cards alone".
std::string kernels_on(int capability);
// Null where no module has the kernel.
const Module* find_module(const std::string& kernel);
std::vector<std::string> module_kernels();

}  // namespace mixtape::gpu
