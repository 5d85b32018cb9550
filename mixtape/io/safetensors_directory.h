// The tensors of a model directory: one model.safetensors, or shards and the index that names them.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "mixtape/io/safetensors.h"

namespace mixtape {

// `path` is a directory, or a single .safetensors file. In a directory, model.safetensors.index.json decides
// if it exists. It is checked in whole before any tensor is read: throws format naming every shard that is
// absent, or every tensor that its shard lacks.
class SafetensorsDirectory {
 public:
  explicit SafetensorsDirectory(const std::filesystem::path& path);

  const std::string& where() const { return where_; }
  std::vector<std::string> names() const;  // sorted
  bool has(const std::string& name) const { return shard_of_.contains(name); }
  // Throws format if there is none, and says so if a shard holds it but the index lacks it.
  const TensorView& at(const std::string& name) const;
  // Of the first file.
  const std::map<std::string, std::string>& metadata() const { return shards_.begin()->second.metadata(); }

 private:
  void open_single(const std::filesystem::path& file);
  void open_index(const std::filesystem::path& directory);
  void open_shards(const std::filesystem::path& directory);
  void check_index() const;

  std::string where_;
  std::map<std::string, SafetensorsFile> shards_;  // file name -> file
  std::map<std::string, std::string> shard_of_;    // tensor -> file name
};

}  // namespace mixtape
