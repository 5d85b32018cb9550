#include "mixtape/io/gguf_architecture.h"

#include <map>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

// A function's static: files that register run before main in any order.
std::map<std::string, GgufArchitecture>& table() {
  static std::map<std::string, GgufArchitecture> by_type;
  return by_type;
}

}  // namespace

bool register_gguf_architecture(const std::string& model_type, const GgufArchitecture& architecture) {
  const bool is_new = table().emplace(model_type, architecture).second;
  require(is_new, "GGUF architecture of '", model_type, "' is registered twice");
  return is_new;
}

const GgufArchitecture* find_gguf_architecture_of(const std::string& model_type) {
  const auto found = table().find(model_type);
  return found == table().end() ? nullptr : &found->second;
}

}  // namespace mixtape
