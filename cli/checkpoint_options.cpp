#include "cli/checkpoint_options.h"

#include <algorithm>
#include <string_view>

#include "cli/arguments.h"
#include "cli/options.h"

namespace mixtape::cli {
namespace {

// Places, which are bound by what is there, and what changes memory, time or what is told, but no bit of the result.
constexpr std::string_view kFree[] = {"--model",
                                      "--config",
                                      "--model-config",
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
                                      "--log-file",
                                      "--threads",
                                      "--resume",
                                      "--checkpoint-every",
                                      "--write-on-interrupt"};

std::string long_name_of(const CLI::Option& option) { return "--" + option.get_lnames().at(0); }

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
  command = command_line_of(app, {"--config", "--resume"}) + " --resume";
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::string name = long_name_of(*option);
    if (std::find(std::begin(kFree), std::end(kFree), name) == std::end(kFree))
      settings.emplace(name, joined(option->results()));
  }
}

}  // namespace mixtape::cli
