// The files that a command line names to be read.
#pragma once

#include <string>
#include <vector>

namespace mixtape::cli {

// Throws invalid_argument, naming the first one that isn't there or is a directory; empty names are none.
void require_files(const std::vector<std::string>& names);

}  // namespace mixtape::cli
