#include "mixtape/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "mixtape/core/error.h"

namespace mixtape {

void fail_to_open(const std::filesystem::path& path, int reason) {
  const bool is_absent = reason == ENOENT || reason == ENOTDIR || reason == ELOOP || reason == ENAMETOOLONG;
  fail(is_absent ? ErrorCode::invalid_argument : ErrorCode::io, path.string(),
       ": cannot open: ", std::strerror(reason));
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait for its writer
  if (fd < 0) fail_to_open(path, errno);
  struct stat info {};
  const bool is_file = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  void* mapped = nullptr;
  if (is_file && info.st_size > 0) {
    size_ = static_cast<std::size_t>(info.st_size);
    mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  }
  const int reason = errno;
  ::close(fd);
  if (!is_file)
    fail(ErrorCode::invalid_argument, path.string(),
         ": found a directory or special file, expected a regular file");
  if (mapped == MAP_FAILED) fail(ErrorCode::io, path.string(), ": cannot map: ", std::strerror(reason));
  data_ = static_cast<const std::byte*>(mapped);
}

void release_pages(std::span<const std::byte> bytes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(bytes.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(bytes.data() + bytes.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace mixtape
