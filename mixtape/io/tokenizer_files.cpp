#include "mixtape/io/tokenizer_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "mixtape/core/error.h"
#include "mixtape/io/json_file.h"
#include "mixtape/io/text.h"

namespace mixtape {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json object_of(const fs::path& path) {
  if (!fs::exists(path)) return json::object();
  json object = read_config_json(path);
  if (!object.is_object()) fail(ErrorCode::format, path.string(), ": expected a JSON object");
  return object;
}

// NAME.jinja of the folder, sorted by name.
json additional_templates(const fs::path& folder) {
  std::set<fs::path> files;
  if (fs::is_directory(folder)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".jinja") files.insert(entry.path());
    }
  }
  json list = json::array();
  for (const fs::path& file : files) {
    list.push_back({{"name", file.stem().string()}, {"template", read_utf8_file(file)}});
  }
  return list;
}

void add_ids(const json& ids, std::set<std::uint32_t>& out) {
  for (const json& id : ids.is_array() ? ids : json::array({ids})) {
    if (id.is_number_integer() && id >= 0) out.insert(id.get<std::uint32_t>());
  }
}

}  // namespace

json read_tokenizer_config(const fs::path& directory) {
  json config = object_of(directory / "tokenizer_config.json");
  if (!config.contains("added_tokens_decoder"))
    config.update(object_of(directory / "special_tokens_map.json"));
  json templates = additional_templates(directory / "additional_chat_templates");
  const fs::path file = directory / "chat_template.jinja";
  if (!fs::exists(file) && templates.empty()) return config;
  if (!fs::exists(file)) {
    config["chat_template"] = std::move(templates);
    return config;
  }
  std::string text = read_utf8_file(file);
  if (templates.empty()) {
    config["chat_template"] = std::move(text);
  } else {
    templates.push_back({{"name", "default"}, {"template", std::move(text)}});
    config["chat_template"] = std::move(templates);
  }
  return config;
}

std::vector<std::uint32_t> stop_ids(const ModelSource& source, const Tokenizer& tokenizer) {
  std::set<std::uint32_t> ids;
  for (const json& config : {source.config_json(), source.generation_config_json()}) {
    if (config.is_object() && config.contains("eos_token_id")) add_ids(config["eos_token_id"], ids);
  }
  if (const auto eos = tokenizer.eos_id()) ids.insert(*eos);
  return {ids.begin(), ids.end()};
}

}  // namespace mixtape
