// A file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace mixtape {

class MappedFile {
 public:
  // Throws, naming the path and the system's reason: invalid_argument where there is no such file, or no regular one;
  // io where the system refuses.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// What a file that open(2) refused with `reason` means: invalid_argument where there is none, else io.
[[noreturn]] void fail_to_open(const std::filesystem::path& path, int reason);

// Gives the memory behind mapped bytes back; they are read from the file again when they are next touched.
void release_pages(std::span<const std::byte> bytes);

}  // namespace mixtape
