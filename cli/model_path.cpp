#include "cli/model_path.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "mixtape/core/error.h"
#include "mixtape/io/json_file.h"

namespace mixtape::cli {
namespace {

namespace fs = std::filesystem;

fs::path from_environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? fs::path() : fs::path(value);
}

fs::path hub_cache() {
  if (const fs::path cache = from_environment("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const fs::path home = from_environment("HF_HOME"); !home.empty()) return home / "hub";
  if (const fs::path cache = from_environment("XDG_CACHE_HOME"); !cache.empty())
    return cache / "huggingface/hub";
  return from_environment("HOME") / ".cache/huggingface/hub";
}

// "owner/name" with the letters that the hub allows.
bool is_repository(const std::string& name) {
  const std::size_t slash = name.find('/');
  const auto is_word = [](std::string_view part) {
    return !part.empty() && part.front() != '.' && part.front() != '-' &&
           std::all_of(part.begin(), part.end(), [](unsigned char c) {
             return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
           });
  };
  return slash != name.npos && is_word(std::string_view(name).substr(0, slash)) &&
         is_word(std::string_view(name).substr(slash + 1));
}

// What refs/main names, else any snapshot that has a config. Empty where there is none.
fs::path snapshot(const fs::path& repository) {
  std::error_code ignored;
  const fs::path main = repository / "refs/main", snapshots = repository / "snapshots";
  if (fs::exists(main, ignored)) {
    const std::string text = read_text(main);
    const fs::path named = snapshots / text.substr(0, text.find_first_of("\r\n"));
    if (fs::exists(named / "config.json", ignored)) return named;
  }
  for (const auto& entry : fs::directory_iterator(snapshots, ignored)) {
    if (fs::exists(entry.path() / "config.json", ignored)) return entry.path();
  }
  return {};
}

}  // namespace

fs::path find_model(const std::string& name) {
  std::error_code ignored;
  const fs::file_type type = fs::status(name, ignored).type();
  require(type != fs::file_type::directory || fs::exists(fs::path(name) / "config.json", ignored), name,
          ": a directory without config.json, expected a model");
  if (type != fs::file_type::not_found) return name;
  require(is_repository(name), name, ": no such file or directory");
  std::string folder = "models--" + name;
  folder.replace(folder.find('/'), 1, "--");
  const fs::path cache = hub_cache(), found = snapshot(cache / folder);
  if (!found.empty()) return found;
  fail(ErrorCode::invalid_argument, name, ": no such file or directory, nor a model in ", cache.string(),
       "; to download it: hf download ", name);
}

std::uint64_t mapped_bytes(const fs::path& model) {
  std::error_code ignored;
  std::uint64_t bytes = 0;  // where `model` is a file there is nothing to list
  for (const fs::directory_entry& entry : fs::directory_iterator(model, ignored)) {
    if (entry.path().extension() == ".safetensors") bytes += entry.file_size(ignored);
  }
  return bytes;
}

}  // namespace mixtape::cli
