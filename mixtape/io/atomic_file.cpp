#include "mixtape/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <utility>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

namespace fs = std::filesystem;

constexpr int kAttempts = 100;

[[noreturn]] void fail_system(const fs::path& path, const char* what) {
  fail(ErrorCode::io, path.string(), ": ", what, ": ", std::strerror(errno));
}

// "out/" and "out" name the same directory; the temporary name must not end up inside it.
fs::path without_slash(const fs::path& path) {
  require(!path.empty(), "output path is empty");
  return path.has_filename() ? path : path.parent_path();
}

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

fs::path temporary_name(const fs::path& target) {
  char suffix[9];
  std::snprintf(suffix, sizeof suffix, "%08x", std::random_device{}());
  fs::path name = target;
  return name += std::string(".tmp-") + suffix;
}

// Calls `create` with fresh names until it returns something other than "exists".
template <class Create>
std::pair<fs::path, int> create_temporary(const fs::path& target, Create create) {
  for (int i = 0; i < kAttempts; ++i) {
    const fs::path name = temporary_name(target);
    const int result = create(name);
    if (result >= 0) return {name, result};
    if (errno != EEXIST) fail_system(name, "cannot create");
  }
  fail(ErrorCode::io, target.string(), ": found no free temporary name beside it");
}

// Files and directories alike.
void sync_path(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_system(path, "cannot open to sync");
  const int result = ::fsync(fd);
  const int reason = errno;
  ::close(fd);
  errno = reason;
  if (result != 0) fail_system(path, "cannot sync");
}

void rename_and_sync(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_system(to, "cannot rename the temporary to this name");
  sync_path(parent_of(to));
}

void refuse_existing(const fs::path& target) {
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(target, ignored))) {
    fail(ErrorCode::io, target.string(), ": output directory exists");
  }
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& target) : target_(without_slash(target)) {
  std::tie(temporary_, fd_) = create_temporary(target_, [](const fs::path& name) {
    return ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  });
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) { write_at(end_, bytes); }

void AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  require(fd_ >= 0, target_.string(), ": write after commit");
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_system(target_, "cannot write");
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += static_cast<std::uint64_t>(done);
  }
  end_ = std::max(end_, offset);
}

void AtomicFile::commit() {
  require(fd_ >= 0, target_.string(), ": committed twice");
  if (::fsync(fd_) != 0) fail_system(target_, "cannot sync");
  if (::close(std::exchange(fd_, -1)) != 0) fail_system(target_, "cannot close");
  rename_and_sync(temporary_, target_);
  temporary_.clear();
}

void write_file(const fs::path& target, std::string_view text) {
  AtomicFile file(target);
  file.write(text);
  file.commit();
}

AtomicDirectory::AtomicDirectory(const fs::path& target) : target_(without_slash(target)) {
  refuse_existing(target_);
  temporary_ =
      create_temporary(target_, [](const fs::path& name) { return ::mkdir(name.c_str(), 0777); }).first;
}

AtomicDirectory::~AtomicDirectory() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

void AtomicDirectory::commit() {
  require(!committed_, target_.string(), ": committed twice");
  refuse_existing(target_);
  try {
    for (const auto& entry : fs::recursive_directory_iterator(temporary_)) sync_path(entry.path());
  } catch (const fs::filesystem_error& error) {
    fail(ErrorCode::io, temporary_.string(), ": cannot list: ", error.code().message());
  }
  sync_path(temporary_);
  rename_and_sync(temporary_, target_);
  committed_ = true;
}

}  // namespace mixtape
