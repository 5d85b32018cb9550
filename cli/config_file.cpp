#include "cli/config_file.h"

#include <algorithm>
#include <sstream>

#include "cli/arguments.h"
#include "cli/inputs.h"
#include "cli/nearest.h"
#include "cli/quote.h"
#include "mixtape/core/error.h"
#include "mixtape/io/json_file.h"

namespace mixtape::cli {
namespace {

// CLI11 gives sections' begins and ends as items too.
bool is_bracket(const CLI::ConfigItem& item) { return item.name == "++" || item.name == "--"; }

bool is_of(const CLI::App& command, const CLI::ConfigItem& item) {
  return item.parents.empty() || command.check_name(item.parents.front());
}

// Sections of commands that don't exist would be ignored for ever.
void check_section(const CLI::App& command, const std::string& file, const CLI::ConfigItem& item) {
  if (item.parents.empty()) return;
  std::vector<std::string> names;
  for (const CLI::App* c : commands_of(*command.get_parent())) {
    if (item.parents.size() == 1 && c->check_name(item.parents.front())) return;
    names.push_back(c->get_name());
  }
  std::string name;
  for (const std::string& parent : item.parents) name += (name.empty() ? "" : ".") + parent;
  fail(ErrorCode::invalid_argument, file, ": ",
       unknown_word("section", printable(name), names, "mixtape help"));
}

const CLI::Option& option_of(const CLI::App& command, const std::string& file, const std::string& name) {
  const CLI::Option* option = command.get_option_no_throw(name);
  const bool is_known = option != nullptr && name != "--config" && name != "--help";
  require(
      is_known, file, ": ",
      unknown_word("option", printable(name), option_names(command), "mixtape help " + command.get_name()));
  return *option;
}

bool is_true(const std::string& file, const ConfigOption& flag) {
  const bool is_known = flag.values.size() == 1 && (flag.values[0] == "true" || flag.values[0] == "false");
  require(is_known, file, ": ", flag.name, " is ",
          flag.values.empty() ? "empty" : printable(flag.values.front()), ", expected true or false");
  return flag.values[0] == "true";
}

std::vector<CLI::ConfigItem> read_items(const std::string& file) {
  require_files({file});
  const std::string text = read_text(file);
  require(text.find('\0') == text.npos, file, ": found a NUL byte, expected lines such as bits = 3");
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  require(begin == text.npos || text[begin] != '{', file,
          ": found JSON, expected lines such as bits = 3 (a model's config.json is --model-config)");
  std::istringstream lines(text);
  return CLI::ConfigTOML().from_config(lines);
}

}  // namespace

std::vector<ConfigOption> read_config(const CLI::App& command, const std::string& file) {
  std::vector<ConfigOption> found;
  for (const CLI::ConfigItem& item : read_items(file)) {
    check_section(command, file, item);
    if (is_bracket(item) || !is_of(command, item)) continue;
    ConfigOption next{nullptr, "--" + item.name, item.inputs};
    next.option = &option_of(command, file, next.name);
    const bool is_again = std::any_of(found.begin(), found.end(),
                                      [&](const ConfigOption& o) { return o.option == next.option; });
    require(!is_again, file, ": ", next.name, " is given twice, expected once");
    const int most = next.option->get_items_expected_max();
    if (most == 0) {
      if (!is_true(file, next)) continue;
      next.values.clear();
    } else {
      require(!next.values.empty() && !next.values.front().empty(), file, ": ", next.name, " has no value");
      require(most > 1 || next.values.size() == 1, file, ": ", next.name, " has ", next.values.size(),
              " values, expected one; a value with spaces stands in quotes");
    }
    found.push_back(std::move(next));
  }
  return found;
}

}  // namespace mixtape::cli
