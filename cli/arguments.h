// The command line before it is parsed: every word is known, or one line says which isn't.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace mixtape::cli {

// The words after the program's name; "help" and "help dwq" become "--help" and "dwq --help". Throws
// invalid_argument for an unknown command, option or word, naming the nearest known one, and for an option
// without its value. Behind them come the options of a file of --config, but for those that the words give or exclude.
std::vector<std::string> checked_arguments(const CLI::App& app, int argc, char** argv);

// "mixtape quantize --model M --bits 3": what the command was given, on its line and in a file of --config, values as words
// of a shell; without the options named in `but`.
std::string command_line_of(const CLI::App& command, const std::vector<std::string>& but = {});

// Long ones and short ones: "--out", "-o".
std::vector<std::string> option_names(const CLI::App& command);

// In the order in which they were added.
std::vector<const CLI::App*> commands_of(const CLI::App& app);

}  // namespace mixtape::cli
