#include "mixtape/runtime/libraries.h"

#include <map>
#include <utility>

namespace mixtape {
namespace {

std::map<std::string, Library>& libraries() {
  static std::map<std::string, Library> table;
  return table;
}

}  // namespace

bool register_library(Library library) {
  std::string name = library.name;
  return libraries().emplace(std::move(name), std::move(library)).second;
}

std::vector<Library> registered_libraries() {
  std::vector<Library> all;
  for (const auto& [name, library] : libraries()) all.push_back(library);
  return all;
}

}  // namespace mixtape
