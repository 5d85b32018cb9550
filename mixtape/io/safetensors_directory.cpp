#include "mixtape/io/safetensors_directory.h"

#include <nlohmann/json.hpp>
#include <set>

#include "mixtape/core/counted.h"
#include "mixtape/core/error.h"
#include "mixtape/io/json_file.h"

namespace mixtape {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

// What cannot be looked at counts as absent: opening it then says why.
bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// A shard lies beside the index: anything else could name a file outside the directory.
void check_shard_name(const std::string& shard, const fs::path& index) {
  if (fs::path(shard).filename() == shard && shard.ends_with(".safetensors")) return;
  fail(ErrorCode::format, index.string(), ": shard is called '", shard,
       "', expected a plain *.safetensors name");
}

std::map<std::string, std::string> read_weight_map(const fs::path& index) {
  const json parsed = read_json(index);
  const bool usable = parsed.is_object() && parsed.contains("weight_map") && parsed["weight_map"].is_object();
  if (!usable) fail(ErrorCode::format, index.string(), ": has no weight_map from tensor to file name");
  std::map<std::string, std::string> map;
  for (const auto& [name, shard] : parsed["weight_map"].items()) {
    if (!shard.is_string()) {
      fail(ErrorCode::format, index.string(), ": shard of '", name, "' is ", shard.dump(),
           ", expected a string");
    }
    check_shard_name(shard.get<std::string>(), index);
    map.emplace(name, shard.get<std::string>());
  }
  if (map.empty()) fail(ErrorCode::format, index.string(), ": weight_map is empty");
  return map;
}

}  // namespace

SafetensorsDirectory::SafetensorsDirectory(const fs::path& path) : where_(path.string()) {
  const fs::path name = path.has_filename() ? path.filename() : path.parent_path().filename();
  if (!is_folder(path) || name.extension() == ".safetensors") {
    open_single(path);
  } else if (is_there(path / kIndexName)) {
    open_index(path);
  } else if (is_there(path / kSingleName)) {
    open_single(path / kSingleName);
  } else {
    fail(ErrorCode::format, where_, ": found neither ", kSingleName, " nor ", kIndexName);
  }
}

void SafetensorsDirectory::open_single(const fs::path& file) {
  const auto [shard, inserted] = shards_.emplace(file.filename().string(), SafetensorsFile::open(file));
  for (const auto& [name, view] : shard->second.tensors()) shard_of_.emplace(name, shard->first);
}

void SafetensorsDirectory::open_index(const fs::path& directory) {
  shard_of_ = read_weight_map(directory / kIndexName);
  open_shards(directory);
  check_index();
}

void SafetensorsDirectory::open_shards(const fs::path& directory) {
  std::set<std::string> wanted;
  for (const auto& [name, shard] : shard_of_) wanted.insert(shard);
  std::vector<std::string> absent;
  for (const std::string& shard : wanted) {
    if (!is_there(directory / shard)) absent.push_back(shard);
  }
  if (!absent.empty()) {
    fail(ErrorCode::format, where_, ": the index names ", counted(wanted.size(), "shard"),
         ", absent: ", joined(absent));
  }
  for (const std::string& shard : wanted) shards_.emplace(shard, SafetensorsFile::open(directory / shard));
}

void SafetensorsDirectory::check_index() const {
  std::vector<std::string> lacking;
  for (const auto& [name, shard] : shard_of_) {
    if (!shards_.at(shard).has(name)) lacking.push_back("'" + name + "' in " + shard);
  }
  if (!lacking.empty()) {
    fail(ErrorCode::format, where_, ": stale index, its shards lack these tensors: ", joined(lacking));
  }
}

std::vector<std::string> SafetensorsDirectory::names() const {
  std::vector<std::string> names;
  for (const auto& [name, shard] : shard_of_) names.push_back(name);
  return names;
}

const TensorView& SafetensorsDirectory::at(const std::string& name) const {
  const auto found = shard_of_.find(name);
  if (found != shard_of_.end()) return shards_.at(found->second).at(name);
  for (const auto& [shard, file] : shards_) {
    if (file.has(name)) {
      fail(ErrorCode::format, where_, ": the index lacks the name '", name, "' though ", shard, " holds it");
    }
  }
  fail(ErrorCode::format, where_, ": has no tensor '", name, "'");
}

}  // namespace mixtape
