// Which mixtape this is.
#pragma once

#include <string>

namespace mixtape::cli {

const char* version();  // "0.1.0"
const char* commit();   // "10937d8", "10937d8-dirty", or "unknown commit"; made by cmake/commit.cmake

// "mixtape 0.1.0 (10937d8)", the compiler and the backends, a line each.
std::string version_text();

}  // namespace mixtape::cli
