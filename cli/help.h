// What --help prints: the options in their groups, within 80 columns.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace mixtape::cli {

class HelpFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

// What the statuses mean that the program ends with.
std::string exit_statuses();

}  // namespace mixtape::cli
