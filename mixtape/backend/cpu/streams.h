// When a kernel writes past the caches.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mixtape::cpu {

// Whether an output of `rows` rows of `cols` is so large that it leaves the caches before anyone reads it,
// and all its rows start on 64-byte boundaries.
template <class T>
bool streams(const T* y, std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kCacheBytes = std::int64_t{16} << 20;
  const std::int64_t row = cols * static_cast<std::int64_t>(sizeof(T));
  return rows * row >= kCacheBytes && (rows == 1 || row % 64 == 0) &&
         reinterpret_cast<std::uintptr_t>(y) % 64 == 0;
}

// Copies bytes that don't overlap; `to` starts on a 64-byte boundary. parallel_for ends with the fence it
// needs.
void copy_past_caches(const std::byte* from, std::byte* to, std::size_t bytes);

}  // namespace mixtape::cpu
