// What a run shows while it works, and how the user stops it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/progress.h"
#include "mixtape/calib/forecast.h"
#include "mixtape/calib/trainer.h"

namespace mixtape::cli {

// A progress line for each stage, with loss and rate where it trains, though two take turns; validations on lines of
// their own. The time left is the stage's, or of the whole run once its stages are known. Stops where interrupted() says so.
class StageDisplay {
 public:
  // From now on lines show the time left of all these stages, and of training the share of a product's rate: `operations`
  // are those of a token.
  void expect(const std::vector<StageTime>& stages, double operations, double product_rate);
  // With a place for states, or none.
  RunHooks hooks(KeptStates* states = nullptr);
  // Ends the lines of stages that did not come to their end.
  void close() { lines_.clear(); }

 private:
  void show(const StageProgress& p);
  std::map<std::string, Progress> lines_;  // of stages that have begun, not ended
  std::optional<Forecast> forecast_;
  Stopwatch clock_;
  double fastest_ = 0.0;  // tokens per second at the rate of a product; 0: not known
};

// What a training should be known for: an end before its last step, a loss that rose from its best state on.
void print_course(const TrainReport& report);

// How often each of `rows` training rows will be seen; from four times on with a warning. Of a batch larger than they
// are, what is left of it.
void print_epochs(const TrainOptions& options, std::int64_t rows);

}  // namespace mixtape::cli
