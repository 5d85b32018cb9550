#include "mixtape/io/model_source.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "mixtape/core/error.h"
#include "mixtape/io/directory_model.h"
#include "mixtape/io/gguf_model.h"

namespace mixtape {

namespace {

// By its first bytes: files in a store of blobs have no extension.
bool begins_as_gguf(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) return false;
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::string_view(magic, sizeof magic) == "GGUF";
}

}  // namespace

ModelConfig ModelSource::config() const {
  return ModelConfig::parse(config_json(), where() + ": config.json");
}

nlohmann::json ModelSource::generation_config_json() const { return nullptr; }

std::unique_ptr<ModelSource> open_model(const std::filesystem::path& path) {
  std::error_code reason;
  const auto status = std::filesystem::status(path, reason);
  if (!std::filesystem::exists(status)) {
    fail(ErrorCode::invalid_argument, path.string(),
         ": cannot open: ", reason ? reason.message() : "not found");
  }
  if (std::filesystem::is_directory(status)) return open_directory_model(path);
  if (path.extension() == ".gguf" || begins_as_gguf(path)) return open_gguf_model(path);
  fail(ErrorCode::not_supported, path.string(),
       ": found a file that isn't GGUF, expected a GGUF file or the directory of a model");
}

}  // namespace mixtape
