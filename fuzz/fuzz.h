// What the fuzzers share. The rule for all: whatever the input says, the library returns or throws Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "mixtape/core/error.h"

namespace mixtape::fuzz {

// Prints where MIXTAPE_FUZZ_SHOW is set: for looking at one input.
void show(const Error& error);

// Runs `body`; an Error ends it, any other exception ends the program.
template <class Body>
void allow_error(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    show(error);
  }
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Several files in one input: a line "@@ name" begins each. What stands before the first has the name "".
std::map<std::string, std::string> sections_of(std::string_view input);

// A safetensors file with this header, its length in front, and data as long as the header's offsets ask for
// (at most 256 KB): a mutation of the header alone stays a readable file.
std::string safetensors_with(std::string_view header);

// A directory in memory, made once, in which each input's files replace the ones before.
class Files {
 public:
  Files();
  ~Files();
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void clear() const;
  std::filesystem::path write(const std::string& name, std::string_view contents) const;

 private:
  std::filesystem::path path_;
};

}  // namespace mixtape::fuzz
