// How GGUF writes numbers and strings. Implementation only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mixtape::gguf {

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline void put_string(std::string& out, std::string_view text) {
  put<std::uint64_t>(out, text.size());
  out += text;
}

}  // namespace mixtape::gguf
