// What long work tells its caller while it runs, and how the caller stops it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace mixtape {

class KeptStates;

struct StageProgress {
  std::string stage;                 // "teacher targets"
  std::int64_t done = 0, total = 0;  // of the stage
  std::string unit;                  // what is counted: "tokens", "rows", "steps", "tensors"
  std::optional<double> loss = {};   // training: of the last step
  std::optional<double> tokens_per_second = {};
  std::optional<double> validation_loss = {};  // set where this call tells a validation after `done` steps
};

// Both functions are called by the thread that called the work; what they throw ends it, and nothing is written.
struct RunHooks {
  std::function<void(const StageProgress&)> progress;
  // Asked at least once a batch, a token or a tensor; once true, it must stay true.
  std::function<bool()> should_stop;
  // Where work keeps its state, to be gone on with by another run (calib/kept_states.h); null: nowhere. The names of
  // states begin with `scope`, so that stages that are alike don't take each other's.
  KeptStates* states = nullptr;
  std::string scope = {};

  void report(const StageProgress& p) const {
    if (progress) progress(p);
  }
  bool stops() const { return should_stop && should_stop(); }
  // For work whose first part is of no use: throws interrupted, naming the stage, if the caller wants to
  // stop.
  void throw_if_stopped(const std::string& stage) const;
};

}  // namespace mixtape
