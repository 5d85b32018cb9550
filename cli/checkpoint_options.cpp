#include "cli/checkpoint_options.h"

#include <algorithm>
#include <string_view>

#include "cli/options.h"
#include "cli/quote.h"

namespace mixtape::cli {
namespace {

// Places, which are bound by what is there, and what changes memory, time or what is told, but no bit of the result.
constexpr std::string_view kFree[] = {"--model",
                                      "--config",
                                      "--tokenizer",
                                      "--device",
                                      "--text",
                                      "--chats",
                                      "--report-text",
                                      "--plan",
                                      "--out",
                                      "--json",
                                      "--html",
                                      "--save-plan",
                                      "--save-imatrix",
                                      "--checkpoint",
                                      "--stream-teacher",
                                      "--dry-run",
                                      "--quiet",
                                      "--threads",
                                      "--resume",
                                      "--checkpoint-every",
                                      "--write-on-interrupt"};

std::string long_name_of(const CLI::Option& option) { return "--" + option.get_lnames().at(0); }

std::string words_of(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return " " + long_name_of(option);
  std::string words;
  for (const std::string& value : option.results())
    words += " " + long_name_of(option) + " " + shell_word(value);
  return words;
}

std::string joined(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : ", ") + value;
  return text;
}

}  // namespace

void CheckpointOptions::add(CLI::App& app) {
  OptionGroup group(app, "Checkpoint");
  group.number("--checkpoint-every", minutes, {.least = 0, .most = 1e6},
               "Minutes between two checkpoints in OUT.checkpoint, which is removed at the end; 0: none");
  group.flag("--resume", resume,
             "Go on from OUT.checkpoint, with the same bits; where there is none, begin anew");
}

void CheckpointOptions::finish(const CLI::App& app) {
  command = "mixtape " + app.get_name();
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::string name = long_name_of(*option);
    if (name != "--resume") command += words_of(*option);
    if (std::find(std::begin(kFree), std::end(kFree), name) == std::end(kFree))
      settings.emplace(name, joined(option->results()));
  }
  command += " --resume";
}

}  // namespace mixtape::cli
