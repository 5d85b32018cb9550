// mixtape man: the manual page, of what --help says.
#include <fmt/core.h>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/version.h"

namespace mixtape::cli {
namespace {

// Text as roff takes it: no line begins with a command, hyphens stay what they are.
std::string roff(const std::string& text) {
  std::string out;
  bool is_first = true;
  for (const char c : text) {
    if (is_first && (c == '.' || c == '\'')) out += "\\&";
    out += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
    is_first = c == '\n';
  }
  return out;
}

std::string option_entry(const CLI::Option& option) {
  std::string names;
  for (const std::string& name : option.get_snames()) names += (names.empty() ? "-" : ", -") + name;
  for (const std::string& name : option.get_lnames()) names += (names.empty() ? "--" : ", --") + name;
  if (option.get_items_expected_max() > 0) names += " " + option.get_type_name();
  std::string text = option.get_description();
  if (!option.get_default_str().empty()) text += fmt::format(" [{}]", option.get_default_str());
  return fmt::format(".TP\n.B {}\n{}\n", roff(names), roff(text));
}

std::string command_section(const CLI::App& command) {
  std::string text =
      fmt::format(".SS mixtape {}\n{}\n", roff(command.get_name()), roff(command.get_description()));
  for (const CLI::Option* option : command.get_options()) text += option_entry(*option);
  if (!command.get_footer().empty()) text += fmt::format(".PP\n.nf\n{}\n.fi\n", roff(command.get_footer()));
  return text;
}

std::string page(const CLI::App& app) {
  std::string text = fmt::format(
      ".TH MIXTAPE 1 \"\" \"mixtape {}\"\n"
      ".SH NAME\nmixtape \\- quantizes language models, calibrated by gradient\n"
      ".SH SYNOPSIS\n.B mixtape\n.I COMMAND\n[options]\n"
      ".SH DESCRIPTION\n{}\n"
      ".SH COMMANDS\n",
      version(), roff(app.get_description()));
  for (const CLI::App* command : commands_of(app)) text += command_section(*command);
  return text + ".SH \"EXIT STATUS\"\n" + roff(exit_statuses()) + "\n";
}

}  // namespace

void add_man(CLI::App& app) {
  CLI::App* command = app.add_subcommand("man", "Prints the manual page: mixtape man | man -l -");
  command->callback([&app] { fmt::print("{}", page(app)); });
}

}  // namespace mixtape::cli
