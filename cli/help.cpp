#include "cli/help.h"

#include <fmt/core.h>

#include <sstream>

#include "cli/arguments.h"

namespace mixtape::cli {
namespace {

constexpr std::size_t kWidth = 79;
constexpr std::size_t kColumn = 28;  // where explanations begin

constexpr const char* kStatuses =
    "0 done; 1 failed: memory, a device, or a place to write; 2 wrong command line, model or text; 3 "
    "calibration or training came to nothing better than its start; 128+N ended by signal N.";

// `head`, and `text` in lines from column `indent` on.
std::string columns(const std::string& head, const std::string& text, std::size_t indent) {
  std::string result, line = head;
  std::istringstream words(text);
  if (!line.empty() && line.size() + 1 > indent) {
    result = line + "\n";
    line.clear();
  }
  line.resize(indent, ' ');
  for (std::string word; words >> word;) {
    const bool first = line.size() == indent;
    if (!first && line.size() + 1 + word.size() > kWidth) {
      result += line + "\n";
      line = std::string(indent, ' ') + word;
    } else {
      line += (first ? "" : " ") + word;
    }
  }
  return result + line + "\n";
}

std::string status_lines() { return "\n" + columns("", std::string("Exit status: ") + kStatuses, 0); }

std::string names_of(const CLI::Option& option) {
  std::string text;
  for (const std::string& name : option.get_snames()) text += (text.empty() ? "-" : ", -") + name;
  for (const std::string& name : option.get_lnames()) text += (text.empty() ? "--" : ", --") + name;
  if (text.empty()) return option.get_type_name();
  return option.get_items_expected_max() == 0 ? text : text + " " + option.get_type_name();
}

std::string option_line(const CLI::Option& option) {
  std::string text = option.get_description();
  if (option.get_required()) text += " (required)";
  if (!option.get_default_str().empty()) text += fmt::format(" [{}]", option.get_default_str());
  return columns("  " + names_of(option), text, kColumn);
}

std::string usage(const CLI::App& command) {
  std::string text = "mixtape " + command.get_name();
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_required()) continue;
    const bool is_word = option->get_positional();
    text += is_word ? " " + option->get_type_name()
                    : fmt::format(" --{} {}", option->get_lnames()[0], option->get_type_name());
  }
  return columns("usage:", text + " [options]", 7);
}

std::string options_of(const CLI::App& command, const std::string& group, const std::string& title) {
  std::string text;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group() == group) text += option_line(*option);
  }
  return text.empty() ? text : "\n" + title + ":\n" + text;
}

std::string command_help(const CLI::App& command) {
  std::string text = columns("", command.get_description(), 0) + "\n" + usage(command);
  for (const std::string& group : command.get_groups()) {
    if (group != "Options") text += options_of(command, group, group);
  }
  text += options_of(command, "Options", "Other");
  if (!command.get_footer().empty()) text += "\n" + command.get_footer() + "\n";
  return text + status_lines();
}

std::string program_help(const CLI::App& app) {
  std::string text =
      columns("", app.get_description(), 0) + "\nusage: mixtape COMMAND [options]\n\nCommands:\n";
  for (const CLI::App* command : commands_of(app)) {
    text += columns("  " + command->get_name(), command->get_description(), kColumn);
  }
  return text + options_of(app, "Options", "Options") +
         "\n`mixtape help COMMAND` lists the options of a command with examples.\n" + status_lines();
}

}  // namespace

std::string exit_statuses() { return kStatuses; }

std::string HelpFormatter::make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const {
  return app->get_parent() == nullptr ? program_help(*app) : command_help(*app);
}

}  // namespace mixtape::cli
