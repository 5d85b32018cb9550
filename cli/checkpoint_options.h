// --checkpoint-every and --resume, and what a checkpoint must know of the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <string>

namespace mixtape::cli {

struct CheckpointOptions {
  double minutes = 10.0;  // between two checkpoints; 0: none
  bool resume = false;
  std::string command;         // the one that goes on with this run
  std::int64_t processes = 1;  // that go on with it together
  std::map<std::string, std::string>
      settings;  // options as given, but for those that change nothing of a result

  void add(CLI::App& command);
  // Once the command line is read.
  void finish(const CLI::App& command);
};

}  // namespace mixtape::cli
