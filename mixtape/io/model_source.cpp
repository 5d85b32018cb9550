#include "mixtape/io/model_source.h"

#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/directory_model.h"
#include "mixtape/io/gguf_model.h"

namespace mixtape {

ModelConfig ModelSource::config() const {
  return ModelConfig::parse(config_json(), where() + ": config.json");
}

nlohmann::json ModelSource::generation_config_json() const { return nullptr; }

std::unique_ptr<ModelSource> open_model(const std::filesystem::path& path) {
  std::error_code reason;
  const auto status = std::filesystem::status(path, reason);
  if (!std::filesystem::exists(status)) {
    fail(ErrorCode::io, path.string(), ": cannot open: ", reason ? reason.message() : "not found");
  }
  if (std::filesystem::is_directory(status)) return open_directory_model(path);
  if (path.extension() == ".gguf") return open_gguf_model(path);
  fail(ErrorCode::not_supported, path.string(), ": found a file, expected a model directory or a .gguf file");
}

}  // namespace mixtape
