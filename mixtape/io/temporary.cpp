#include "mixtape/io/temporary.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

namespace fs = std::filesystem;

constexpr int kAttempts = 100;
constexpr std::string_view kMark = ".tmp-";
constexpr std::size_t kSuffixDigits = 8;

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
  char suffix[kSuffixDigits + 1];
  std::snprintf(suffix, sizeof suffix, "%08x", std::random_device{}());
  fs::path name = target;
  return name += std::string(kMark) + suffix;
}

bool is_temporary_of(const fs::path& target, const std::string& name) {
  const std::string begin = target.filename().string() + std::string(kMark);
  return name.size() == begin.size() + kSuffixDigits && name.starts_with(begin) &&
         name.find_first_not_of("0123456789abcdef", begin.size()) == name.npos;
}

enum class Lock { taken, held_by_another, unsupported };

Lock try_lock(int fd) {
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return Lock::taken;
  return errno == EWOULDBLOCK ? Lock::held_by_another : Lock::unsupported;
}

int open_to_lock(const fs::path& path) { return ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC); }

int create(const fs::path& name, Temporary::Kind kind) {
  if (kind == Temporary::Kind::file) {
    return ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  }
  return ::mkdir(name.c_str(), 0777) == 0 ? open_to_lock(name) : -1;
}

// Between its creation and its lock a temporary looks like a dead process's: another run may have removed it.
bool is_there(int fd, const fs::path& path) {
  struct stat opened {
  }, named{};
  return ::fstat(fd, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

// What remove_live_temporaries removes. Never destroyed: a signal may come while the program exits.
struct Live {
  std::mutex mutex;
  std::set<fs::path> paths;
};

Live& live() {
  static Live* const instance = new Live;
  return *instance;
}

// Whether it was a dead process's and is gone now.
bool remove_dead(const fs::path& target, const fs::path& temporary) {
  const int fd = open_to_lock(temporary);
  if (fd < 0) return false;
  const Lock lock = try_lock(fd);
  std::error_code ignored;
  const bool removed = lock == Lock::taken && fs::remove_all(temporary, ignored) > 0;
  ::close(fd);
  if (lock == Lock::held_by_another) {
    fail(ErrorCode::io, target.string(), ": another run is writing it: ", temporary.string());
  }
  return removed;
}

}  // namespace

void sync_path(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_system(path, "cannot open to sync");
  const int result = ::fsync(fd);
  const int reason = errno;
  ::close(fd);
  errno = reason;
  if (result != 0) fail_system(path, "cannot sync");
}

ParentDirectories::ParentDirectories(const fs::path& path) {
  std::error_code ignored;
  std::vector<fs::path> missing;  // innermost first
  for (fs::path folder = parent_of(path); folder != "." && !fs::exists(folder, ignored);
       folder = parent_of(folder)) {
    missing.push_back(folder);
  }
  std::reverse(missing.begin(), missing.end());
  for (const fs::path& folder : missing) {
    if (::mkdir(folder.c_str(), 0777) == 0) {
      created_.push_back(folder);
    } else if (errno != EEXIST) {
      const int reason = errno;
      for (auto made = created_.rbegin(); made != created_.rend(); ++made) ::rmdir(made->c_str());
      errno = reason;
      fail_system(folder, "cannot create");
    }
  }
}

ParentDirectories::~ParentDirectories() {
  for (auto folder = created_.rbegin(); folder != created_.rend(); ++folder) ::rmdir(folder->c_str());
}

void ParentDirectories::keep() {
  for (const fs::path& folder : created_) sync_path(parent_of(folder));
  created_.clear();
}

Temporary::Temporary(const fs::path& target, Kind kind) : target_(without_slash(target)), parents_(target_) {
  for (int i = 0; i < kAttempts && path_.empty(); ++i) {
    const fs::path name = temporary_name(target_);
    fd_ = create(name, kind);
    if (fd_ < 0 && errno == EEXIST) continue;
    if (fd_ < 0) fail_system(target_, "cannot create");
    ::flock(fd_, LOCK_EX);  // a file system without locks does without
    if (is_there(fd_, name)) {
      path_ = name;
    } else {
      ::close(std::exchange(fd_, -1));
    }
  }
  if (path_.empty()) fail(ErrorCode::io, target_.string(), ": found no free temporary name beside it");
  const std::lock_guard guard(live().mutex);
  live().paths.insert(path_);
}

Temporary::~Temporary() {
  if (!in_place()) {
    const std::lock_guard guard(live().mutex);
    live().paths.erase(path_);
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  if (fd_ >= 0) ::close(fd_);
}

void Temporary::put_in_place() {
  {
    const std::lock_guard guard(live().mutex);
    if (::rename(path_.c_str(), target_.c_str()) != 0) {
      fail_system(target_, "cannot rename the temporary to this name");
    }
    live().paths.erase(path_);
    path_.clear();
  }
  parents_.keep();
  sync_path(parent_of(target_));
}

std::vector<fs::path> Temporary::sweep() const {
  std::vector<fs::path> swept;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent_of(target_), ignored)) {
    const std::string name = entry.path().filename().string();
    const fs::path other = target_.parent_path() / name;
    if (other != path_ && is_temporary_of(target_, name) && remove_dead(target_, other))
      swept.push_back(other);
  }
  return swept;
}

void remove_live_temporaries() {
  const std::lock_guard guard(live().mutex);
  for (const fs::path& path : live().paths) {
    std::error_code reason;  // the thread that writes may add a file meanwhile: once more
    for (int i = 0; i < kAttempts; ++i) {
      fs::remove_all(path, reason);
      if (!reason) break;
    }
  }
}

}  // namespace mixtape
