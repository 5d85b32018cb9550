#include "mixtape/io/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // as the kernel's

[[noreturn]] void fail_system(const std::string& name, const char* what) {
  fail(ErrorCode::io, name, ": ", what, ": ", std::strerror(errno));
}

// N of "/dev/fd/N" and its like.
std::optional<int> numbered_descriptor(std::string_view name) {
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!name.starts_with(folder)) continue;
    int fd = -1;
    const auto [end, error] = std::from_chars(name.data() + folder.size(), name.data() + name.size(), fd);
    if (error == std::errc() && end == name.data() + name.size()) return fd;
  }
  return std::nullopt;
}

// The descriptor of this process that the name stands for. A file that standard output is redirected to
// must not be replaced under it.
std::optional<int> descriptor(const std::string& name) {
  if (name == "-" || name == "/dev/stdout") return STDOUT_FILENO;
  if (name == "/dev/stderr") return STDERR_FILENO;
  if (const auto fd = numbered_descriptor(name)) return fd;
  struct stat named {
  }, opened{};
  if (::stat(name.c_str(), &named) != 0 || !S_ISREG(named.st_mode)) return std::nullopt;
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (::fstat(fd, &opened) == 0 && opened.st_ino == named.st_ino && opened.st_dev == named.st_dev)
      return fd;
  }
  return std::nullopt;
}

// The name at the end of a chain of links, which need not exist.
fs::path without_links(fs::path path) {
  std::error_code reason;
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(path, reason)); ++i) {
    const fs::path next = fs::read_symlink(path, reason);
    path = path.parent_path() / next;  // an absolute `next` stands alone
  }
  return path;
}

int open_special(const std::string& name) {
  int fd = -1;
  do {
    fd = ::open(name.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) fail_system(name, "cannot open for writing");
  return fd;
}

}  // namespace

OutputFile::OutputFile(const std::string& name) : name_(name == "-" ? "standard output" : name) {
  require(!name.empty(), "output path is empty");
  if (const auto fd = descriptor(name)) {
    fd_ = ::fcntl(*fd, F_DUPFD_CLOEXEC, 0);
    if (fd_ < 0) fail_system(name_, "cannot write to this descriptor");
    return;
  }
  struct stat info {};
  const bool exists = ::stat(name.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) fail(ErrorCode::io, name, ": is a directory, expected a file");
  if (exists && !S_ISREG(info.st_mode)) {
    fd_ = open_special(name);
    return;
  }
  if (exists && ::access(name.c_str(), W_OK) != 0) fail_system(name, "cannot open for writing");
  file_ = std::make_unique<AtomicFile>(without_links(name));
  swept_ = file_->sweep();
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void OutputFile::write(std::string_view text) {
  if (file_) {
    file_->write(text);
    file_->commit();
  } else {
    write_straight(text);
  }
}

void OutputFile::write_straight(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t done = ::write(fd_, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_system(name_, "cannot write");
    text.remove_prefix(static_cast<std::size_t>(done));
  }
}

}  // namespace mixtape
