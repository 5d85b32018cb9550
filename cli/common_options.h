// Options that every subcommand has.
#pragma once

#include <CLI/CLI.hpp>

namespace mixtape::cli {

void add_common_options(CLI::App& command);

}  // namespace mixtape::cli
