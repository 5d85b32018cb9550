// Files and directories that appear whole or not at all: written under a temporary name, synced, renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "mixtape/io/temporary.h"

namespace mixtape {

// Writes `<target>.tmp-XXXXXXXX`; commit() puts it in the target's place, replacing an existing file, whose
// permissions it takes. Missing parents are created. Without commit() the destructor removes all that. Every
// method throws io, naming the path and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& target);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::filesystem::path& target() const { return temporary_.target(); }
  std::vector<std::filesystem::path> sweep() const { return temporary_.sweep(); }
  void write(std::span<const std::byte> bytes);  // after what was written last
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void commit();

 private:
  Temporary temporary_;
  std::uint64_t end_ = 0;
};

// One call for a small file.
void write_file(const std::filesystem::path& target, std::string_view text);

// Creates `<target>.tmp-XXXXXXXX` and missing parents, to be filled through path(); commit() syncs every file
// in it and renames it. Without commit() the destructor removes all that. Refused: an existing target, and
// one that a living process has an AtomicDirectory for, which is named.
class AtomicDirectory {
 public:
  explicit AtomicDirectory(const std::filesystem::path& target);
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  const std::filesystem::path& target() const { return temporary_.target(); }
  const std::filesystem::path& path() const { return temporary_.path(); }
  // Temporaries of dead processes that the constructor found beside it and removed.
  const std::vector<std::filesystem::path>& swept() const { return swept_; }
  void commit();

 private:
  Temporary temporary_;
  std::vector<std::filesystem::path> swept_;
};

}  // namespace mixtape
