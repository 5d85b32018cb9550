#include "cli/disk_space.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <nlohmann/json.hpp>

#include "cli/progress.h"
#include "mixtape/core/error.h"

namespace mixtape::cli {

void require_disk_space(const std::string& name, const std::filesystem::path& where, std::uint64_t bytes,
                        std::uint64_t beside, std::uint64_t largest) {
  struct statvfs disk {};
  if (::statvfs(where.c_str(), &disk) == 0) {
    const double free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
    if (free < static_cast<double>(bytes + beside)) {
      fail(ErrorCode::io, name, ": ", format_bytes(free), " are free on its disk, expected ",
           format_bytes(static_cast<double>(bytes + beside)),
           beside > 0
               ? str(", ", format_bytes(static_cast<double>(beside)), " of them for tokenizer and config")
               : "");
    }
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < largest) {
    fail(ErrorCode::io, name, ": files may have ", format_bytes(static_cast<double>(limit.rlim_cur)),
         " here (ulimit -f), expected ", format_bytes(static_cast<double>(largest)));
  }
}

std::uint64_t bytes_beside(std::uint64_t copied, std::size_t tensors) {
  constexpr std::uint64_t kCard = 16 << 10,
                          kNames = 512;  // a module's codes, scales and biases, in header and index
  return copied + kCard + kNames * tensors;
}

std::uint64_t bytes_beside(const ModelSource& source) {
  std::uint64_t copied = source.config_json().dump(4).size();
  for (const auto& [name, contents] : source.extra_files()) copied += contents.size();
  return bytes_beside(copied, source.names().size());
}

}  // namespace mixtape::cli
