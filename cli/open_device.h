// The device of a run, and the line that names it.
#pragma once

#include <cstdio>
#include <string>

#include "mixtape/runtime/device.h"

namespace mixtape::cli {

// Opens it and prints "device       cpu, AVX-512, 2 threads", with `auto` why not a better one.
Device open_device(const std::string& name, std::FILE* out = stdout);

}  // namespace mixtape::cli
