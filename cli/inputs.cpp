#include "cli/inputs.h"

#include <filesystem>

#include "mixtape/core/error.h"

namespace mixtape::cli {

void require_files(const std::vector<std::string>& names) {
  using std::filesystem::file_type;
  for (const std::string& name : names) {
    if (name.empty()) continue;
    std::error_code ignored;  // opening it will say more
    const file_type type = std::filesystem::status(name, ignored).type();
    require(type != file_type::not_found, name, ": no such file or directory");
    require(type != file_type::directory, name, ": found a directory, expected a file");
  }
}

}  // namespace mixtape::cli
