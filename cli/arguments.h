// The command line before it is parsed: every word is known, or one line says which isn't.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace mixtape::cli {

// The words after the program's name; "help" and "help dwq" become "--help" and "dwq --help". Throws
// invalid_argument for an unknown command, option or word, naming the nearest known one, and for an option
// without its value.
std::vector<std::string> checked_arguments(const CLI::App& app, int argc, char** argv);

// In the order in which they were added.
std::vector<const CLI::App*> commands_of(const CLI::App& app);

}  // namespace mixtape::cli
