#include "cli/common_options.h"

#include <omp.h>

#include "cli/options.h"
#include "cli/terminal.h"

namespace mixtape::cli {

void add_common_options(CLI::App& command) {
  constexpr double kMostThreads = 1024;
  command.add_flag_callback("-q,--quiet", be_quiet, "Show no progress")->group("Options");
  auto threads = std::make_shared<std::int64_t>(0);
  OptionGroup(command, "Options")
      .whole(
          "-t,--threads", *threads, {.least = 1, .most = kMostThreads},
          "Threads of the CPU; if not given, OMP_NUM_THREADS, or one for each core; the results are the same")
      ->default_str("");
  command.parse_complete_callback([threads] {
    if (*threads > 0) omp_set_num_threads(static_cast<int>(*threads));
  });
}

}  // namespace mixtape::cli
