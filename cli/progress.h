// Progress of long work: one line that is rewritten on a terminal, elsewhere and in the file of --log-file a plain line at
// the begin and the end of each stage and every ten seconds between.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mixtape/core/stopwatch.h"

namespace mixtape::cli {

class Progress {
 public:
  // `unit` is what is counted: "tokens", "tensors".
  Progress(std::string what, std::string unit);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  struct State {
    std::int64_t done = 0, total = 0;
    std::string note = {};                    // stands behind the figures: a loss, say
    std::string details = {};                 // behind that, where there is room
    std::optional<double> seconds_left = {};  // of the whole run; if not known, the stage's are shown
  };
  void update(const State& state);

 private:
  void show(const State& state) const;
  std::string text(const State& state, std::size_t width) const;
  std::optional<double> seconds_left(const State& state, double rate) const;

  std::string what_, unit_;
  Stopwatch start_;
  std::optional<std::int64_t> done_before_;  // when the first update came: work that start_ does not time
  std::optional<Stopwatch> shown_, logged_;  // since the line was shown last, and put into the log
  bool rewrites_;
};

// "12/s", or "2.3 s/step" where one takes longer than a second. `unit` is a plural.
std::string format_rate(double per_second, const std::string& units);
// "1m 05s", "12s"
std::string format_seconds(double seconds);
// "1.9 GB"
std::string format_bytes(double bytes);

}  // namespace mixtape::cli
