// How much memory this process has held.
#pragma once

#include <cstdint>

namespace mixtape {

// The most at any time, in bytes.
std::uint64_t peak_resident_bytes();

}  // namespace mixtape
