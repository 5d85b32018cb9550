// Renders the chat template of a tokenizer_config.json: the subset of Jinja that such templates use, with
// trim_blocks and lstrip_blocks as in the reference library.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace mixtape {

struct ChatOptions {
  bool add_generation_prompt = false;
  nlohmann::ordered_json tools;      // null if there are none
  nlohmann::ordered_json variables;  // object of further names, such as {"enable_thinking": false}, or null
  // What strftime_now() formats, in UTC. Without it the template doesn't have this function, so that what it
  // makes is the same every day.
  std::optional<std::chrono::sys_seconds> now;
};

// A cheap handle; safe to use from several threads.
class ChatTemplate {
 public:
  // `tokens` are names that the template sees, such as bos_token. Throws format, naming the line, and
  // not_supported, naming a tag that isn't known.
  explicit ChatTemplate(const std::string& source, std::map<std::string, std::string> tokens = {});

  // The member "chat_template", a string or a list with one named "default"; nothing if there is none.
  static std::optional<ChatTemplate> from_config(const nlohmann::json& tokenizer_config);

  // chat_template.jinja of a model directory, else what its tokenizer_config.json holds.
  static std::optional<ChatTemplate> load(const std::filesystem::path& directory);

  // `messages` is an array of {"role", "content", ...}. Throws invalid_argument with the template's own words
  // if it refuses them, and not_supported for a filter or test that isn't known; messages name the line.
  std::string render(const nlohmann::ordered_json& messages, const ChatOptions& options = {}) const;

 private:
  struct Parsed;
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace mixtape
