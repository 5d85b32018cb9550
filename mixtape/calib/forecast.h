// How much longer a run of several stages takes, from what was expected of each and how it went so far.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "mixtape/core/run_hooks.h"

namespace mixtape {

struct StageTime {
  std::string stage;     // as StageProgress calls it
  double seconds = 0.0;  // expected
};

class Forecast {
 public:
  // In the order in which they come.
  explicit Forecast(const std::vector<StageTime>& stages);

  double seconds() const;  // expected of all
  // `now` in seconds, of any clock. A stage that comes ends those before it: what of them wasn't seen was done by
  // another run. Stages that are not among them are left out.
  void update(const StageProgress& progress, double now);
  // As it was at the last update: what is left of the stage at its own pace, the later ones at the pace of all so far.
  double seconds_left() const;

 private:
  struct Stage {
    StageTime expected;
    bool has_begun = false;
    double first = 0.0, done = 0.0;  // shares of it: when it was first seen, and now
    double seen() const { return expected.seconds * (done - first); }
    double rest() const { return expected.seconds * (1.0 - done); }
  };
  void enter(std::size_t stage, double share, double now);
  double pace() const;

  std::vector<Stage> stages_;
  std::size_t current_ = 0;
  double begin_ = 0.0, entered_ = 0.0, now_ = 0.0;  // of the run, of the current stage, of the last update
  bool has_begun_ = false;
};

}  // namespace mixtape
