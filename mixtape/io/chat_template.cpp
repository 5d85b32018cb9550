#include "mixtape/io/chat_template.h"

#include <ctime>

#include "mixtape/core/error.h"
#include "mixtape/io/chat_template_eval.h"
#include "mixtape/io/chat_template_parser.h"
#include "mixtape/io/json_file.h"
#include "mixtape/io/text.h"

namespace mixtape {

using nlohmann::json;
using nlohmann::ordered_json;

struct ChatTemplate::Parsed {
  chat::Block block;
  std::map<std::string, std::string> tokens;
};

namespace {

// Every "..._token" of the configuration: a string or an object with "content".
std::map<std::string, std::string> special_tokens(const json& config) {
  std::map<std::string, std::string> tokens;
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_token")) continue;
    const json& text = value.is_object() && value.contains("content") ? value["content"] : value;
    if (text.is_string()) tokens[key] = text.get<std::string>();
  }
  return tokens;
}

std::string default_of(const json& templates) {
  if (templates.is_string()) return templates.get<std::string>();
  if (templates.is_array()) {
    for (const json& entry : templates) {
      if (entry.is_object() && entry.value("name", json()) == "default" &&
          entry.value("template", json()).is_string()) {
        return entry["template"].get<std::string>();
      }
    }
  }
  fail(ErrorCode::format,
       "tokenizer_config: chat_template must be a string or a list with one named \"default\"");
}

chat::Value strftime_now(std::chrono::sys_seconds now, const chat::Arguments& arguments) {
  const chat::Value format = arguments.bind({"format"}, "strftime_now")[0];
  require(format.string(), "strftime_now needs a format");
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[256] = "";
  const std::size_t size = std::strftime(text, sizeof text, format.string()->c_str(), &utc);
  return std::string(text, size);
}

}  // namespace

ChatTemplate::ChatTemplate(const std::string& source, std::map<std::string, std::string> tokens)
    : parsed_(std::make_shared<const Parsed>(Parsed{chat::parse(source), std::move(tokens)})) {}

std::optional<ChatTemplate> ChatTemplate::from_config(const json& tokenizer_config) {
  const auto found = tokenizer_config.find("chat_template");
  if (found == tokenizer_config.end() || found->is_null()) return std::nullopt;
  return ChatTemplate(default_of(*found), special_tokens(tokenizer_config));
}

std::optional<ChatTemplate> ChatTemplate::load(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / "chat_template.jinja";
  const std::filesystem::path config_file = directory / "tokenizer_config.json";
  const json config = std::filesystem::exists(config_file) ? read_json(config_file) : json::object();
  if (!config.is_object()) fail(ErrorCode::format, config_file.string(), ": expected a JSON object");
  const bool has_file = std::filesystem::exists(file);
  try {
    return has_file ? ChatTemplate(read_utf8_file(file), special_tokens(config)) : from_config(config);
  } catch (const Error& error) {
    fail(error.code(), (has_file ? file : config_file).string(), ": ", error.what());
  }
}

std::string ChatTemplate::render(const ordered_json& messages, const ChatOptions& options) const {
  require(messages.is_array(), "chat template: messages must be an array");
  chat::Dict names;
  for (const auto& [name, text] : parsed_->tokens) names.set(name, text);
  names.set("messages", chat::Value::from_json(messages));
  names.set("tools", chat::Value::from_json(options.tools));
  names.set("documents", chat::None{});
  names.set("add_generation_prompt", options.add_generation_prompt);
  for (const auto& [name, value] : options.variables.items()) names.set(name, chat::Value::from_json(value));
  if (options.now) {
    names.set("strftime_now", chat::Function([now = *options.now](const chat::Arguments& arguments) {
                return strftime_now(now, arguments);
              }));
  }
  return chat::evaluate(parsed_->block, names.entries);
}

}  // namespace mixtape
