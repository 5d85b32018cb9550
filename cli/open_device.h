// The devices of a run, and the lines that name them.
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "mixtape/runtime/device_group.h"

namespace mixtape::cli {

// Opens it and prints "device       cpu, AVX-512, 2 threads", with `auto` why not a better one.
Device open_device(const std::string& name, std::FILE* out = stdout);

// Of commands whose steps several may share: "cuda:0,cuda:1", or "all" of the best kind. A line for each, and for several
// one that says which way their gradients are added up.
// With a launch those of this process among those of all; `auto` is then the card that has this process's number on its
// host, and processes other than the first have one line.
std::unique_ptr<DeviceGroup> open_devices(const std::string& names, const std::optional<Launch>& launch);
// Throws invalid_argument unless each of them gets a row of a batch.
void require_row_for_each(const DeviceGroup& devices, std::int64_t batch);

}  // namespace mixtape::cli
