// mixtape completions: what a shell offers behind a half-typed command line.
#include <fmt/core.h>

#include <functional>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/options.h"

namespace mixtape::cli {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::vector<std::string> words_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
  names.emplace_back("help");
  return names;
}

// With its value in words of one of its own, else files are offered.
std::string bash_case(const CLI::App& command) {
  std::vector<std::string> names;
  std::string values;
  for (const CLI::Option* option : command.get_options()) {
    const std::vector<std::string> own = words_of(*option), choices = choices_of(*option);
    names.insert(names.end(), own.begin(), own.end());
    if (choices.empty()) continue;
    std::string pattern;
    for (const std::string& name : own) pattern += (pattern.empty() ? "" : "|") + name;
    values += fmt::format("        {}) words=\"{}\" ;;\n", pattern, joined(choices));
  }
  return fmt::format(
      "    {})\n"
      "      case $before in\n"
      "{}"
      "        *) [[ $word == -* ]] && words=\"{}\" ;;\n"
      "      esac ;;\n",
      command.get_name(), values, joined(names));
}

std::string bash_script(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* command : commands_of(app)) cases += bash_case(*command);
  return fmt::format(
      "_mixtape() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=\n"
      "  case $COMP_CWORD:${{COMP_WORDS[1]}} in\n"
      "    1:*|2:help) words=\"{}\" ;;\n"
      "  esac\n"
      "  [[ $COMP_CWORD -gt 1 ]] && case ${{COMP_WORDS[1]}} in\n"
      "{}"
      "  esac\n"
      "  COMPREPLY=()\n"
      "  if [[ -n $words ]]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
      "  else\n"
      "    compopt -o default 2>/dev/null\n"
      "  fi\n"
      "}}\n"
      "complete -F _mixtape mixtape\n",
      joined(names_of_commands(app)), cases);
}

// In single quotes for zsh and fish.
std::string quoted(const std::string& text, const std::string& escaped_quote) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? escaped_quote : std::string(1, c);
  return out + "'";
}

std::string zsh_option(const CLI::Option& option, const std::string& name) {
  std::string text = option.get_description();
  for (const char special : {'[', ']', ':'}) {
    for (std::size_t at = 0; (at = text.find(special, at)) != text.npos; at += 2) text.insert(at, "\\");
  }
  std::string spec = fmt::format("{}[{}]", name, text);
  const std::vector<std::string> choices = choices_of(option);
  if (option.get_items_expected_max() > 0)
    spec += choices.empty() ? ":value:_files" : fmt::format(":value:({})", joined(choices));
  return quoted(spec, "'\\''");
}

std::string zsh_script(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* command : commands_of(app)) {
    cases += fmt::format("    {}) _arguments", command->get_name());
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : words_of(*option)) cases += " \\\n      " + zsh_option(*option, name);
    }
    cases += " \\\n      '*:file:_files' ;;\n";
  }
  std::string commands;
  for (const CLI::App* command : commands_of(app))
    commands += " " + quoted(command->get_name() + ":" + command->get_description(), "'\\''");
  return fmt::format(
      "#compdef mixtape\n"
      "local -a commands=({} 'help:Lists commands, or the options of one.')\n"
      "if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
      "local name=$words[2]\n"
      "shift words; (( CURRENT-- ))\n"
      "case $name in\n"
      "    help) (( CURRENT == 2 )) && _describe command commands ;;\n"
      "{}"
      "esac\n",
      commands.substr(1), cases);
}

std::string fish_script(const CLI::App& app) {
  std::string text =
      "complete -c mixtape -n __fish_use_subcommand -f -a help -d 'Lists commands, or the options of one.'\n";
  for (const CLI::App* command : commands_of(app)) {
    text += fmt::format("complete -c mixtape -n __fish_use_subcommand -f -a {} -d {}\n", command->get_name(),
                        quoted(command->get_description(), "\\'"));
    for (const CLI::Option* option : command->get_options()) {
      std::string line =
          fmt::format("complete -c mixtape -n '__fish_seen_subcommand_from {}'", command->get_name());
      for (const std::string& name : option->get_snames()) line += " -s " + name;
      for (const std::string& name : option->get_lnames()) line += " -l " + name;
      const std::vector<std::string> choices = choices_of(*option);
      if (!choices.empty()) {
        line += fmt::format(" -x -a '{}'", joined(choices));
      } else if (option->get_items_expected_max() > 0) {
        line += " -r";
      }
      text += line + " -d " + quoted(option->get_description(), "\\'") + "\n";
    }
  }
  return text;
}

}  // namespace

void add_completions(CLI::App& app) {
  CLI::App* command = app.add_subcommand("completions", "Prints a shell's completions of this program.");
  auto shell = std::make_shared<std::string>();
  OptionGroup(*command, "Shell")
      .choice("--shell,shell", *shell, {"bash", "zsh", "fish"}, "Whose")
      ->required();
  command->footer(
      "Examples:\n"
      "  mixtape completions bash >~/.local/share/bash-completion/completions/mixtape\n"
      "  mixtape completions zsh >~/.zfunc/_mixtape    # a folder of $fpath\n"
      "  mixtape completions fish >~/.config/fish/completions/mixtape.fish");
  command->callback([shell, &app] {
    const auto script = *shell == "bash" ? bash_script : *shell == "zsh" ? zsh_script : fish_script;
    fmt::print("{}", script(app));
  });
}

}  // namespace mixtape::cli
