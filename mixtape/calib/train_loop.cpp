#include "mixtape/calib/train_loop.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "mixtape/calib/schedule.h"
#include "mixtape/core/counted.h"
#include "mixtape/core/random.h"
#include "mixtape/core/stopwatch.h"

namespace mixtape {

// Latent codes have a rate of their own.
Optimizer make_optimizer(const std::vector<NamedVar>& leaves, const Parameters& parameters,
                         const TrainOptions& o) {
  std::vector<float> units(leaves.size(), 1.0f);
  if (o.relative_rate) units = relative_units(leaves, parameters);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i].name.ends_with(kLatentSuffix)) units[i] = static_cast<float>(o.code_rate / o.learning_rate);
  }
  return Optimizer(leaves, std::move(units));
}

TrainLoop::TrainLoop(Objective& objective, TrainState& state, const LoopRows& rows,
                     const TrainOptions& options, const TrainHooks& hooks)
    : objective_(objective), state_(state), rows_(rows), options_(options), hooks_(hooks) {
  check(options);
  require(rows.train > 0 && rows.validation > 0, "train: found ", rows.train, " training and ",
          rows.validation, " validation rows, expected at least one of each");
  if (hooks_.communicator == nullptr) hooks_.communicator = &alone_;
  const auto members = static_cast<std::size_t>(hooks_.communicator->size()),
             batch = std::min(rows.train, static_cast<std::size_t>(options.batch_size));
  require(batch >= members, "train: a batch has ", counted(batch, "row"),
          ", expected one or more for each of the ", members, " devices");
  report().learning_rate = options.learning_rate;
}

void TrainLoop::run() {
  state_.optimizer.expect_equal_values(*hooks_.communicator);
  if (lacks_validation()) validate();
  std::int64_t batch = 0;
  for (std::int64_t pass = 0; !is_done(); ++pass) {
    const auto batches = rows_.order(pass);
    require(!batches.empty(), "train: no batch, found ", rows_.train, " training rows");
    for (const auto& rows : batches) {
      if (batch++ < report().steps_done) continue;  // before the state was saved
      step(rows);
      if (is_done()) break;
    }
  }
  if (report().stopped_early && hooks_.checkpoint) hooks_.checkpoint(state_);
  if (options_.keep_best) state_.optimizer.restore_best();
  state_.optimizer.wait();
  state_.optimizer.expect_equal_values(*hooks_.communicator);
}

bool TrainLoop::is_done() const {
  return report().steps_done >= options_.steps || report().stopped_early || report().diverged;
}

// Of the start, or of a step whose state was saved before it.
bool TrainLoop::lacks_validation() const {
  const std::vector<ValidationPoint>& points = report().validation;
  if (report().diverged) return false;
  return points.empty() || (is_validated(report().steps_done) && points.back().step < report().steps_done);
}

bool TrainLoop::is_validated(std::int64_t step) const {
  const std::int64_t every =
      options_.validate_every > 0 ? options_.validate_every : std::max<std::int64_t>(1, options_.steps / 10);
  return step % every == 0 || step == options_.steps;
}

void TrainLoop::step(std::span<const std::size_t> rows) {
  train_step(rows);
  if (report().diverged) return;
  if (stops()) {
    if (options_.validate_at_stop) validate();
    return;
  }
  if (is_validated(report().steps_done)) validate();
  if (hooks_.checkpoint && !is_done()) hooks_.checkpoint(state_);
}

void TrainLoop::train_step(std::span<const std::size_t> rows) {
  const Stopwatch watch;
  const BatchLoss result = objective_.train(rows, state_.optimizer);
  ++report().steps_done;
  report().losses.push_back(result.mean());
  if (!is_finite(result.mean(), "loss")) return;
  if (result.positions > 0.0) {
    update();
  } else {
    ++report().empty_batches;
  }
  report().tokens_seen += static_cast<std::int64_t>(result.positions);
  report().seconds += watch.seconds();
  tell(result.mean(), {});
}

void TrainLoop::update() {
  state_.optimizer.step(rate(report().steps_done), options_.weight_decay, options_.clip_norm,
                        *hooks_.communicator);
  if (!objective_.overwrites_gradients()) state_.optimizer.clear_gradients();
}

double TrainLoop::rate(std::int64_t step) const {
  if (options_.constant_rate) return options_.learning_rate;
  const auto warmup =
      static_cast<std::int64_t>(std::ceil(options_.warmup_share * static_cast<double>(options_.steps)));
  return warmup_cosine(options_.learning_rate, step, warmup, options_.steps, options_.final_rate_share);
}

void TrainLoop::validate() {
  const auto batch_size = static_cast<std::size_t>(options_.batch_size);
  BatchLoss sum;
  for (std::size_t begin = 0; begin < rows_.validation; begin += batch_size) {
    if (stops() && !options_.validate_at_stop) return;
    std::vector<std::size_t> rows(std::min(batch_size, rows_.validation - begin));
    std::iota(rows.begin(), rows.end(), rows_.train + begin);
    const BatchLoss part = objective_.evaluate(rows);
    sum.loss += part.loss;
    sum.positions += part.positions;
  }
  note_validation({report().steps_done, sum.mean()});
}

void TrainLoop::note_validation(const ValidationPoint& point) {
  if (!is_finite(point.loss, "validation loss")) return;
  if (report().validation.empty() || point.loss < report().best_loss) {
    report().best_loss = point.loss;
    report().best_step = point.step;
    state_.optimizer.keep_best();
  }
  report().validation.push_back(point);
  tell({}, point.loss);
}

// Else marks the run as diverged; throws where there is no state worth keeping.
bool TrainLoop::is_finite(double loss, const char* what) {
  if (std::isfinite(loss)) return true;
  require(options_.keep_best && report().best_step > 0, "train: the ", what, " of step ", report().steps_done,
          " is ", loss, ", expected a finite number; a smaller learning rate may help");
  report().diverged = true;
  return false;
}

// All members stop as soon as one wants to.
bool TrainLoop::stops() {
  if (!report().stopped_early)
    report().stopped_early = hooks_.communicator->sum_of(hooks_.run.stops() ? 1.0 : 0.0) > 0.0;
  return report().stopped_early;
}

void TrainLoop::tell(std::optional<double> loss, std::optional<double> validation_loss) {
  const TrainReport& r = report();
  const double rate = r.seconds > 0.0 ? static_cast<double>(r.tokens_seen) / r.seconds : 0.0;
  hooks_.run.report({.stage = "training",
                     .done = r.steps_done,
                     .total = options_.steps,
                     .unit = "steps",
                     .loss = loss,
                     .tokens_per_second = rate,
                     .validation_loss = validation_loss});
}

BatchOrder shuffled_batches(std::size_t rows, std::int64_t batch_size, std::uint64_t seed) {
  return [=](std::int64_t pass) {
    const std::vector<std::uint64_t> order = permutation(seed + static_cast<std::uint64_t>(pass), rows);
    const auto size = static_cast<std::size_t>(batch_size);
    std::vector<std::vector<std::size_t>> batches;
    for (std::size_t begin = 0; begin + size <= rows || (begin == 0 && rows > 0); begin += size) {
      batches.emplace_back();
      for (std::size_t i = begin; i < std::min(rows, begin + size); ++i) batches.back().push_back(order[i]);
    }
    return batches;
  };
}

void check(const TrainOptions& o) {
  const auto finite = [](const char* what, double value, bool holds, const char* expected) {
    require(std::isfinite(value) && holds, "train: ", what, " is ", value, ", expected ", expected);
  };
  require(o.steps > 0, "train: steps is ", o.steps, ", expected 1 or more");
  require(o.batch_size > 0, "train: batch size is ", o.batch_size, ", expected 1 or more");
  require(o.validate_every >= 0, "train: validate_every is ", o.validate_every, ", expected 0 or more");
  finite("learning rate", o.learning_rate, o.learning_rate > 0.0 && o.learning_rate <= 1e6,
         "a positive number up to 1e6");
  finite("code rate", o.code_rate, o.code_rate > 0.0 && o.code_rate <= 1.0, "a positive number up to 1");
  finite("warm-up share", o.warmup_share, o.warmup_share >= 0.0 && o.warmup_share <= 1.0, "0 to 1");
  finite("final rate share", o.final_rate_share, o.final_rate_share >= 0.0 && o.final_rate_share <= 1.0,
         "0 to 1");
  finite("weight decay", o.weight_decay, o.weight_decay >= 0.0, "0 or more");
  finite("clip norm", o.clip_norm, o.clip_norm >= 0.0, "0 or more");
}

}  // namespace mixtape
