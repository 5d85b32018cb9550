#include "cli/arguments.h"

#include <algorithm>
#include <cctype>
#include <span>

#include "cli/config_file.h"
#include "cli/nearest.h"
#include "cli/options.h"
#include "cli/quote.h"
#include "mixtape/core/error.h"

namespace mixtape::cli {
namespace {

using Words = std::span<const std::string>;

// "-1" and "-" are values.
bool looks_like_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && word[1] != '.' &&
         std::isdigit(static_cast<unsigned char>(word[1])) == 0;
}

// "--out=x" and "-ox" hold their value.
struct OptionWord {
  std::string name;
  bool has_value = false;
};

OptionWord split(const std::string& word) {
  if (!word.starts_with("--")) return {word.substr(0, 2), word.size() > 2};
  const std::size_t equals = word.find('=');
  return {word.substr(0, equals), equals != word.npos};
}

bool lacks_its_value(const std::string& word) {
  return word.ends_with('=') && word.find('=') + 1 == word.size();
}

const CLI::Option* find(const CLI::App& command, const std::string& name) {
  return command.get_option_no_throw(name);
}

std::string name_of(const CLI::Option& option) { return "--" + option.get_lnames().at(0); }

// How many of the words after an option are its values.
std::size_t count_values(const CLI::App& command, const CLI::Option& option, const std::string& name,
                         Words after) {
  if (option.get_items_expected_max() == 0) return 0;
  require(!after.empty(), command.get_name(), ": ", name, " has no value");
  const bool is_option = looks_like_option(after[0]) && find(command, split(after[0]).name) != nullptr;
  require(!is_option, command.get_name(), ": ", name, " has no value, found ", after[0], " behind it");
  require(!after[0].starts_with("--"), command.get_name(), ": ", name, " has no value, found ", after[0],
          " behind it; if that is the value: ", name_of(option), "=", after[0]);
  std::size_t count = 1;
  while (option.get_items_expected_max() > 1 && count < after.size() && !looks_like_option(after[count]))
    ++count;
  return count;
}

// The options that a command line gives: none twice, none beside one that it excludes.
class Given {
 public:
  explicit Given(const CLI::App& command) : command_(command) {}

  void add(const CLI::Option& option) {
    const bool is_again = has(&option);
    // A flag says the same again; lists grow.
    require(!is_again || option.get_items_expected_max() != 1, command_.get_name(), ": ", name_of(option),
            " is given twice, expected once");
    options_.push_back(&option);
  }
  void check() const {
    for (const CLI::Option* option : options_) {
      if (const CLI::Option* other = excluded_by(*option))
        fail(ErrorCode::invalid_argument, command_.get_name(), ": found ", name_of(*option), " and ",
             name_of(*other), ", expected one of them");
    }
  }
  // One of them that can't stand beside it; null: there is none.
  const CLI::Option* excluded_by(const CLI::Option& option) const {
    for (const CLI::Option* other : option.get_excludes()) {
      if (has(other)) return other;
    }
    return nullptr;
  }
  bool has(const CLI::Option* option) const {
    return std::find(options_.begin(), options_.end(), option) != options_.end();
  }

 private:
  const CLI::App& command_;
  std::vector<const CLI::Option*> options_;  // as they come
};

const CLI::Option* place_of_words(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) return option;
  }
  return nullptr;
}

Given check_words(const CLI::App& command, Words words) {
  const CLI::Option* place = place_of_words(command);
  Given given(command);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!looks_like_option(words[i])) {
      require(place != nullptr, command.get_name(), ": '", words[i], "' belongs to no option");
      given.add(*place);
      if (place->get_items_expected_max() == 1) place = nullptr;  // one word has it
      continue;
    }
    const OptionWord word = split(words[i]);
    const CLI::Option* option = find(command, word.name);
    const std::string where = command.get_parent() == nullptr ? "" : command.get_name() + ": ";
    require(option != nullptr, where,
            unknown_word("option", word.name, option_names(command),
                         where.empty() ? "mixtape help" : "mixtape help " + command.get_name()));
    require(!lacks_its_value(words[i]), command.get_name(), ": ", word.name, " has no value");
    require(!word.has_value || option->get_items_expected_max() > 0, command.get_name(), ": ", word.name,
            " takes no value, found ", words[i]);
    given.add(*option);
    if (!word.has_value) i += count_values(command, *option, word.name, words.subspan(i + 1));
  }
  given.check();
  return given;
}

// Of an option that takes one; its option comes once.
std::string value_of(const CLI::App& command, const std::string& name, Words words) {
  const CLI::Option* wanted = find(command, name);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const OptionWord word = split(words[i]);
    if (find(command, word.name) != wanted) continue;
    return word.has_value ? words[i].substr(words[i].find('=') + 1) : words[i + 1];
  }
  return "";
}

void add_config(const CLI::App& command, std::vector<std::string>& words) {
  const Words of_command = Words(words).subspan(1);
  const Given given = check_words(command, of_command);
  const CLI::Option* config = find(command, "--config");
  if (config == nullptr || !given.has(config)) return;
  const std::string file = value_of(command, "--config", of_command);
  Given added(command);
  std::vector<std::string> more;
  for (const ConfigOption& o : read_config(command, file)) {
    if (given.has(o.option) || given.excluded_by(*o.option) != nullptr) continue;
    added.add(*o.option);
    set_origin(o.name, file);
    if (o.values.empty()) more.push_back(o.name);
    for (const std::string& value : o.values) more.push_back(o.name + "=" + value);
  }
  added.check();
  words.insert(words.end(), more.begin(), more.end());
}

std::string given_words(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return " " + name_of(option);
  std::string words;
  for (const std::string& value : option.results()) words += " " + name_of(option) + " " + shell_word(value);
  return words;
}

}  // namespace

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::string command_line_of(const CLI::App& command, const std::vector<std::string>& but) {
  std::string line = "mixtape " + command.get_name();
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    if (std::find(but.begin(), but.end(), name_of(*option)) == but.end()) line += given_words(*option);
  }
  return line;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> checked_arguments(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  require(!words.empty(), "no command was given, `mixtape help` lists them");
  if (words[0] == "help") {
    words.erase(words.begin());
    words.resize(std::min<std::size_t>(words.size(), 1));
    words.emplace_back("--help");
  }
  if (looks_like_option(words[0])) {
    check_words(app, Words(words).first(1));
    return words;
  }
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) {
    names.push_back(command->get_name());
    names.insert(names.end(), command->get_aliases().begin(), command->get_aliases().end());
    if (!command->check_name(words[0])) continue;
    add_config(*command, words);
    return words;
  }
  fail(ErrorCode::invalid_argument, unknown_word("command", words[0], names, "mixtape help"));
}

}  // namespace mixtape::cli
