#include "mixtape/calib/forecast.h"

#include <algorithm>

namespace mixtape {
namespace {

// Until this share of the work was seen the expectation outweighs what was seen.
constexpr double kTrust = 0.1;

// Seconds for each that was expected.
double ratio(double seconds, double expected, double trusted, double before) {
  return expected + trusted > 0.0 ? (seconds + trusted * before) / (expected + trusted) : before;
}

}  // namespace

Forecast::Forecast(const std::vector<StageTime>& stages) {
  for (const StageTime& s : stages) stages_.push_back({s});
}

double Forecast::seconds() const {
  double sum = 0.0;
  for (const Stage& s : stages_) sum += s.expected.seconds;
  return sum;
}

void Forecast::update(const StageProgress& p, double now) {
  const auto found = std::find_if(stages_.begin(), stages_.end(),
                                  [&](const Stage& s) { return s.expected.stage == p.stage; });
  if (found == stages_.end()) return;
  const double share = p.total > 0 ? static_cast<double>(p.done) / static_cast<double>(p.total) : 1.0;
  const auto stage = static_cast<std::size_t>(found - stages_.begin());
  if (!found->has_begun) enter(stage, share, now);
  found->done = share;
  now_ = now;
}

void Forecast::enter(std::size_t stage, double share, double now) {
  if (!has_begun_) begin_ = now_ = now;
  has_begun_ = true;
  for (std::size_t i = 0; i < stage; ++i) {
    if (!stages_[i].has_begun) stages_[i].first = 1.0;
    stages_[i].has_begun = true;
    stages_[i].done = 1.0;
  }
  current_ = stage;
  stages_[stage].has_begun = true;
  stages_[stage].first = share;
  entered_ = now_;  // what came since the last one belongs to this one
}

double Forecast::pace() const {
  double seen = 0.0;
  for (const Stage& s : stages_) seen += s.seen();
  return ratio(now_ - begin_, seen, kTrust * seconds(), 1.0);
}

double Forecast::seconds_left() const {
  if (stages_.empty()) return 0.0;
  const Stage& current = stages_[current_];
  const double pace = this->pace();
  const double own = ratio(now_ - entered_, current.seen(), kTrust * current.expected.seconds, pace);
  double left = own * current.rest();
  for (std::size_t i = current_ + 1; i < stages_.size(); ++i) left += pace * stages_[i].rest();
  return left;
}

}  // namespace mixtape
