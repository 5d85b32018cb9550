#include "mixtape/io/architecture.h"

#include <map>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

// A function's static: files that register run before main in any order.
std::map<std::string, Architecture, std::less<>>& table() {
  static std::map<std::string, Architecture, std::less<>> by_type;
  return by_type;
}

std::string joined(std::string Architecture::*member) {
  std::string names;
  for (const auto& [type, architecture] : table()) {
    const std::string& name = architecture.*member;
    if (!name.empty()) names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

}  // namespace

bool register_architecture(const Architecture& architecture) {
  const bool is_new = table().emplace(architecture.model_type, architecture).second;
  require(is_new, "architecture '", architecture.model_type, "' is registered twice");
  return is_new;
}

const Architecture* find_architecture(std::string_view model_type) {
  const auto found = table().find(model_type);
  if (found != table().end()) return &found->second;
  for (const auto& [type, architecture] : table()) {
    if (!model_type.empty() && architecture.multimodal == model_type) return &architecture;
  }
  return nullptr;
}

const Architecture* find_gguf_architecture(std::string_view gguf) {
  for (const auto& [type, architecture] : table()) {
    if (!gguf.empty() && architecture.gguf == gguf) return &architecture;
  }
  return nullptr;
}

std::vector<const Architecture*> architectures() {
  std::vector<const Architecture*> all;
  for (const auto& [type, architecture] : table()) all.push_back(&architecture);
  return all;
}

std::string architecture_names() { return joined(&Architecture::model_type); }
std::string gguf_architecture_names() { return joined(&Architecture::gguf); }

}  // namespace mixtape
