#include "cli/common_options.h"

#include <omp.h>

#include "cli/arguments.h"
#include "cli/log_file.h"
#include "cli/options.h"
#include "cli/terminal.h"

namespace mixtape::cli {

void add_common_options(CLI::App& command) {
  constexpr double kMostThreads = 1024;
  command.add_flag_callback("-q,--quiet", be_quiet, "Show no progress")->group("Options");
  auto threads = std::make_shared<std::int64_t>(0);
  auto config = std::make_shared<std::string>(), log = std::make_shared<std::string>();
  OptionGroup group(command, "Options");
  group
      .whole(
          "-t,--threads", *threads, {.least = 1, .most = kMostThreads},
          "Threads of the CPU; if not given, OMP_NUM_THREADS, or one for each core; the results are the same")
      ->default_str("");
  group.path("--config", *config, "FILE",
             "Options that are not given here, as lines: bits = 3; `[quantize]` begins those of one command");
  group.path("--log-file", *log, "FILE",
             "Put progress and messages behind what this log holds, with the time, as lines");
  command.parse_complete_callback([threads, config, log, &command] {
    if (*threads > 0) omp_set_num_threads(static_cast<int>(*threads));
    if (!log->empty()) open_log(*log, command_line_of(command, {"--config"}));
  });
}

}  // namespace mixtape::cli
