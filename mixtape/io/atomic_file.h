// Files and directories that appear whole or not at all: written under a temporary name, synced, renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace mixtape {

// Writes `<target>.tmp-XXXXXXXX`; commit() puts it in the target's place, replacing an existing file.
// Without commit() the destructor removes it. Every method throws io, naming the path and the system's
// reason.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::filesystem::path& target() const { return target_; }
  void write(std::span<const std::byte> bytes);  // after what was written last
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  int fd_ = -1;
  std::uint64_t end_ = 0;
};

// One call for a small file.
void write_file(const std::filesystem::path& target, std::string_view text);

// Creates `<target>.tmp-XXXXXXXX`, to be filled through path(); commit() syncs every file in it and renames
// it. Without commit() the destructor removes it with its contents. An existing target is refused.
class AtomicDirectory {
 public:
  explicit AtomicDirectory(const std::filesystem::path& target);
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  const std::filesystem::path& path() const { return temporary_; }
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  bool committed_ = false;
};

}  // namespace mixtape
