// Renders the chat template of a tokenizer_config.json: the subset of Jinja that such templates use, with
// trim_blocks and lstrip_blocks as in the reference library.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "mixtape/io/json_fwd.h"

namespace mixtape {

class ModelSource;

// Templates may print the date. Calibration rows must be the same every day, so it is this one unless told otherwise.
inline constexpr std::chrono::sys_seconds kDefaultDate =
    std::chrono::sys_days(std::chrono::year(2024) / 7 / 26);

struct ChatOptions {
  bool add_generation_prompt = false;
  std::string tools;      // JSON; empty if there are none
  std::string variables;  // JSON: an object of further names, such as {"enable_thinking": false}; empty: none
  std::chrono::sys_seconds now = kDefaultDate;  // what strftime_now() formats
};

// A cheap handle; safe to use from several threads.
class ChatTemplate {
 public:
  // `tokens` are names that the template sees, such as bos_token. Throws format, naming the line, and
  // not_supported, naming a tag that isn't known.
  explicit ChatTemplate(const std::string& source, std::map<std::string, std::string> tokens = {});

  // The member "chat_template", and the "..._token"s as names that it sees. It is a text, or a list of {"name",
  // "template"}: "tool_use" renders chats with tools, "default" the others, and those with tools where there is no
  // "tool_use". Nothing if there is no such member. What read_tokenizer_config gives knows a directory's other files.
  static std::optional<ChatTemplate> from_config(const Json& tokenizer_config);

  // From the configuration of `source`; messages begin with its path.
  static std::optional<ChatTemplate> from_source(const ModelSource& source);

  bool uses_date() const;  // whether it names strftime_now

  // `messages` is JSON: an array of {"role", "content", ...}. Throws format for what isn't JSON, invalid_argument with
  // the template's own words if it refuses them, and not_supported for a filter or test that isn't known; errors name
  // the line.
  std::string render(std::string_view messages, const ChatOptions& options = {}) const;

 private:
  struct Parsed;
  explicit ChatTemplate(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace mixtape
