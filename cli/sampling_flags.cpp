#include "cli/sampling_flags.h"

#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"

namespace mixtape::cli {

void SamplingFlags::add(CLI::App& command, const std::string& name) {
  OptionGroup group(command, name);
  group.whole("-n,--count,--max-tokens", count, {.least = 1}, "Tokens at most");
  group.number("--temperature,--temp", sample.temperature, {.least = 0.001, .most = 100, .or_zero = true},
               "0 takes the most probable token");
  group.whole("--top-k", sample.top_k, {.least = 0}, "Keep so many of the most probable tokens; 0: all");
  group.number("--top-p", sample.top_p, {.least = 0, .most = 1},
               "Keep the most probable tokens up to this probability");
  group.number("--min-p", sample.min_p, {.least = 0, .most = 1},
               "Keep tokens of at least this share of the largest probability");
  group.number("--repeat-penalty,--repetition-penalty", sample.repeat_penalty, {.least = 0.01, .most = 100},
               "Divide the logits of tokens seen lately, or multiply the negative ones; 1: leave them");
  group.whole("--repeat-last-n,--repetition-context-size", sample.repeat_last, {.least = 0},
              "How many tokens back that looks");
  group.seed("--seed", sample.seed, "Seed of the draws");
}

void SamplingFlags::check(const CLI::App& command) const {
  for (const char* name : {"--top-k", "--top-p", "--min-p"})
    require(sample.temperature > 0.0 || command.count(name) == 0, name, " has no effect: --temperature 0");
  require(sample.repeat_penalty != 1.0 || command.count("--repeat-last-n") == 0,
          "--repeat-last-n has no effect: --repeat-penalty is 1");
}

nlohmann::json SamplingFlags::record() const {
  return {{"count", count},
          {"temperature", sample.temperature},
          {"top_k", sample.top_k},
          {"top_p", sample.top_p},
          {"min_p", sample.min_p},
          {"repeat_penalty", sample.repeat_penalty},
          {"repeat_last", sample.repeat_last}};
}

}  // namespace mixtape::cli
