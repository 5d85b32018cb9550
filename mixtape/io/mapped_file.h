// A file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace mixtape {

class MappedFile {
 public:
  // Throws io, naming the path and the system's reason; a directory is refused.
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

// Gives the memory behind mapped bytes back; they are read from the file again when they are next touched.
void release_pages(std::span<const std::byte> bytes);

}  // namespace mixtape
