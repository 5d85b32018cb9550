#include "mixtape/io/chat_template.h"

#include <ctime>
#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/chat_template_eval.h"
#include "mixtape/io/chat_template_parser.h"
#include "mixtape/io/json_file.h"
#include "mixtape/io/model_source.h"

namespace mixtape {

using nlohmann::json;
using nlohmann::ordered_json;

struct ChatTemplate::Parsed {
  std::optional<chat::Block> plain, with_tools;  // at least one of them
  std::map<std::string, std::string> tokens;
  bool uses_date = false;

  const chat::Block& block(bool has_tools) const {
    const auto& chosen = has_tools && with_tools ? with_tools : plain;
    require(chosen.has_value(), "chat template: there is none named \"default\" for chats without tools");
    return *chosen;
  }
};

namespace {

bool names_date(const std::string& source) { return source.find("strftime_now") != std::string::npos; }

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

std::optional<std::string> template_named(const char* name, const json& templates) {
  for (const json& entry : templates) {
    if (entry.is_object() && entry.value("name", json()) == name &&
        entry.value("template", json()).is_string()) {
      return entry["template"].get<std::string>();
    }
  }
  return std::nullopt;
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

ordered_json parsed_or_null(std::string_view text, const char* what) {
  return text.empty() ? ordered_json() : parse_ordered_json(text, str("chat template: ", what));
}

}  // namespace

ChatTemplate::ChatTemplate(const std::string& source, std::map<std::string, std::string> tokens)
    : parsed_(std::make_shared<const Parsed>(
          Parsed{chat::parse(source), std::nullopt, std::move(tokens), names_date(source)})) {}

std::optional<ChatTemplate> ChatTemplate::from_config(const json& tokenizer_config) {
  const json found = tokenizer_config.is_object() ? tokenizer_config.value("chat_template", json()) : json();
  if (found.is_null()) return std::nullopt;
  if (found.is_string()) return ChatTemplate(found.get<std::string>(), special_tokens(tokenizer_config));
  const auto plain = template_named("default", found), with_tools = template_named("tool_use", found);
  if (!found.is_array() || (!plain && !with_tools)) {
    fail(ErrorCode::format,
         "tokenizer_config: chat_template must be a string or a list with one named \"default\" or "
         "\"tool_use\"");
  }
  Parsed parsed;
  if (plain) parsed.plain = chat::parse(*plain);
  if (with_tools) parsed.with_tools = chat::parse(*with_tools);
  parsed.tokens = special_tokens(tokenizer_config);
  parsed.uses_date = names_date(plain.value_or("")) || names_date(with_tools.value_or(""));
  return ChatTemplate(std::make_shared<const Parsed>(std::move(parsed)));
}

std::optional<ChatTemplate> ChatTemplate::from_source(const ModelSource& source) {
  const json config = source.tokenizer_config_json();
  try {
    return from_config(config);
  } catch (const Error& error) {
    fail(error.code(), source.where(), ": ", error.what());
  }
}

bool ChatTemplate::uses_date() const { return parsed_->uses_date; }

std::string ChatTemplate::render(std::string_view messages, const ChatOptions& options) const {
  const ordered_json list = parsed_or_null(messages, "messages"),
                     tools = parsed_or_null(options.tools, "tools"),
                     variables = parsed_or_null(options.variables, "variables");
  require(list.is_array(), "chat template: messages must be an array");
  chat::Entries names;
  for (const auto& [name, text] : parsed_->tokens) names.emplace_back(name, text);
  names.emplace_back("messages", chat::Value::from_json(list));
  names.emplace_back("tools", chat::Value::from_json(tools));
  names.emplace_back("documents", chat::None{});
  names.emplace_back("add_generation_prompt", options.add_generation_prompt);
  for (const auto& [name, value] : variables.items()) names.emplace_back(name, chat::Value::from_json(value));
  const auto clock = [now = options.now](const chat::Arguments& arguments) {
    return strftime_now(now, arguments);
  };
  names.emplace_back("strftime_now", chat::Function(clock));
  return chat::evaluate(parsed_->block(!tools.is_null()), names);
}

}  // namespace mixtape
