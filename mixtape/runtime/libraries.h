// Foreign libraries that backends find at run time, for people who ask what is there and what is missing.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace mixtape {

struct Library {
  std::string name;  // "cuBLASLt"
  // "12.8.4"; throws not_supported with the reason where it isn't there or can't be used.
  std::function<std::string()> version;
};

// Backends enter theirs here before main.
bool register_library(Library library);
// Sorted by name.
std::vector<Library> registered_libraries();

}  // namespace mixtape
