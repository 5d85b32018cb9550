#include "mixtape/io/atomic_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_system(const fs::path& path, const char* what) {
  fail(ErrorCode::io, path.string(), ": ", what, ": ", std::strerror(errno));
}

const fs::path& refuse_existing(const fs::path& target) {
  std::error_code ignored;
  const fs::path name = target.has_filename() ? target : target.parent_path();  // "link/" is the link
  const fs::file_status status = fs::symlink_status(name, ignored);
  if (fs::is_symlink(status) && !fs::exists(name, ignored)) {
    fail(ErrorCode::io, target.string(), ": output directory exists as a link to nothing");
  }
  if (fs::exists(status)) fail(ErrorCode::io, target.string(), ": output directory exists");
  return target;
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& target) : temporary_(target, Temporary::Kind::file) {}

void AtomicFile::write(std::span<const std::byte> bytes) { write_at(end_, bytes); }

void AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  require(!temporary_.in_place(), target().string(), ": write after commit");
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(temporary_.fd(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_system(target(), "cannot write");
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += static_cast<std::uint64_t>(done);
  }
  end_ = std::max(end_, offset);
}

void AtomicFile::commit() {
  require(!temporary_.in_place(), target().string(), ": committed twice");
  struct stat old {};
  if (::stat(target().c_str(), &old) == 0) ::fchmod(temporary_.fd(), old.st_mode & 07777);
  if (::fsync(temporary_.fd()) != 0) fail_system(target(), "cannot sync");
  temporary_.put_in_place();
}

void write_file(const fs::path& target, std::string_view text) {
  AtomicFile file(target);
  file.write(text);
  file.commit();
}

AtomicDirectory::AtomicDirectory(const fs::path& target)
    : temporary_(refuse_existing(target), Temporary::Kind::directory), swept_(temporary_.sweep()) {}

void AtomicDirectory::commit() {
  require(!temporary_.in_place(), target().string(), ": committed twice");
  refuse_existing(target());
  try {
    for (const auto& entry : fs::recursive_directory_iterator(path())) sync_path(entry.path());
  } catch (const fs::filesystem_error& error) {
    fail(ErrorCode::io, path().string(), ": cannot list: ", error.code().message());
  }
  sync_path(path());
  temporary_.put_in_place();
}

}  // namespace mixtape
