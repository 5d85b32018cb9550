// --config: options of a command in a file, as TOML or INI:
//   bits = 3                 # of the command that is run
//   text = ["a.txt", "b.txt"]
//   stream-teacher = true
//   [quantize]               # of that command alone
//   group-size = 32
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace mixtape::cli {

struct ConfigOption {
  const CLI::Option* option;
  std::string name;                 // as the file has it, with "--"
  std::vector<std::string> values;  // none of a flag
};

// What the file says of this command; flags that are false are left out. Throws invalid_argument, naming the file: where
// there is none, for an option that the command doesn't have or has twice, and for as many values as it can't take.
std::vector<ConfigOption> read_config(const CLI::App& command, const std::string& file);

}  // namespace mixtape::cli
