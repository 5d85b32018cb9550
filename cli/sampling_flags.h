// How generate and chat draw tokens.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>

#include "cli/options.h"
#include "mixtape/calib/sample.h"

namespace mixtape::cli {

struct SamplingFlags {
  SampleOptions sample = {.temperature = 0.8, .top_p = 0.95};
  std::int64_t count = 128;  // tokens at most

  // `group`: what --help lists them under.
  void add(CLI::App& command, const std::string& group);
  // Throws invalid_argument for options that have no effect.
  void check(const CLI::App& command) const;
  // For "settings"; the seed has a place of its own.
  nlohmann::json record() const;
};

}  // namespace mixtape::cli
