#include "mixtape/calib/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "mixtape/calib/schedule.h"
#include "mixtape/calib/step.h"
#include "mixtape/core/random.h"
#include "mixtape/core/stopwatch.h"

namespace mixtape {
namespace {

// What each leaf's step is measured in. Latent codes have a rate of their own.
std::vector<float> units_of(const std::vector<NamedVar>& leaves, const Parameters& parameters,
                            const TrainOptions& o) {
  std::vector<float> units(leaves.size(), 1.0f);
  if (o.relative_rate) units = relative_units(leaves, parameters);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i].name.ends_with(kLatentSuffix)) units[i] = static_cast<float>(o.code_rate / o.learning_rate);
  }
  return units;
}

}  // namespace

class Trainer::Run {
 public:
  Run(const ModelConfig& config, Parameters& parameters, DType compute, LossSignal& signal, Tape& tape,
      const TrainRows& rows, const TrainOptions& options, const TrainHooks& hooks)
      : tape_(tape),
        weights_(tape, parameters, options.trainable),
        model_(config, weights_, compute),
        state_{Optimizer(weights_.trainable(), units_of(weights_.trainable(), parameters, options))},
        communicator_(hooks.communicator ? *hooks.communicator : alone_),
        step_(model_, signal, tape, communicator_, forward_),
        rows_(rows),
        options_(options),
        hooks_(hooks) {
    state_.report.learning_rate = options.learning_rate;
    forward_.checkpoint_blocks = options.checkpoint_blocks;
    forward_.on_routing = [this](std::int64_t layer, const Buffer& offsets) {
      if (counting_) routed_.insert_or_assign(layer, offsets);
    };
  }

  TrainState& state() { return state_; }

  TrainReport run() {
    if (report().validation.empty()) validate();
    std::int64_t batch = 0;
    for (std::int64_t pass = 0; !is_done(); ++pass) {
      const auto batches = rows_.order(pass);
      require(!batches.empty(), "train: no batch, found ", rows_.train.size(), " training rows");
      for (const auto& rows : batches) {
        if (batch++ < report().steps_done) continue;  // before the state was saved
        step(rows);
        if (is_done()) break;
      }
    }
    if (options_.keep_best) state_.optimizer.restore_best();
    tape_.encoder().commit_and_wait();
    return report();
  }

 private:
  TrainReport& report() { return state_.report; }
  bool is_done() {
    return report().steps_done >= options_.steps || report().stopped_early || report().diverged;
  }

  void step(const std::vector<std::size_t>& rows) {
    train_step(rows);
    const std::int64_t every = options_.validate_every > 0 ? options_.validate_every
                                                           : std::max<std::int64_t>(1, options_.steps / 10);
    const std::int64_t step = report().steps_done;
    if (report().diverged || stops()) return;
    if (step % every == 0 || step == options_.steps) validate();
    if (hooks_.checkpoint && !is_done()) hooks_.checkpoint(state_);
  }

  void train_step(const std::vector<std::size_t>& rows) {
    const Stopwatch watch;
    const Batch batch = gather(rows_.train, rows);
    counting_ = true;
    const Step::Result result = step_.train(batch, rows, state_.optimizer);
    counting_ = false;
    ++report().steps_done;
    report().losses.push_back(result.mean());
    if (!is_finite(result.mean(), "loss")) return;
    if (result.positions > 0.0) {
      count_routing();
      update();
    } else {
      ++report().empty_batches;
    }
    report().tokens_seen += static_cast<std::int64_t>(result.positions);
    report().seconds += watch.seconds();
    tell(result.mean(), {});
  }

  void update() {
    state_.optimizer.step(rate(report().steps_done), options_.weight_decay, options_.clip_norm,
                          communicator_);
    tape_.encoder().commit();
    if (!step_.is_recorded()) state_.optimizer.clear_gradients();
  }

  double rate(std::int64_t step) const {
    if (options_.constant_rate) return options_.learning_rate;
    const auto warmup =
        static_cast<std::int64_t>(std::ceil(options_.warmup_share * static_cast<double>(options_.steps)));
    return warmup_cosine(options_.learning_rate, step, warmup, options_.steps, options_.final_rate_share);
  }

  void validate() {
    Step::Result sum;
    for (std::size_t begin = 0; begin < rows_.validation.size(); begin += batch_size()) {
      if (stops()) return;
      std::vector<std::size_t> rows(std::min(batch_size(), rows_.validation.size() - begin));
      std::iota(rows.begin(), rows.end(), begin);
      const Batch batch = gather(rows_.validation, rows);
      for (std::size_t& r : rows) r += rows_.train.size();
      const Step::Result part = step_.evaluate(batch, rows);
      sum.loss += part.loss;
      sum.positions += part.positions;
    }
    note_validation({report().steps_done, sum.mean()});
  }

  void note_validation(const ValidationPoint& point) {
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
  bool is_finite(double loss, const char* what) {
    if (std::isfinite(loss)) return true;
    require(options_.keep_best && report().best_step > 0, "train: the ", what, " of step ",
            report().steps_done, " is ", loss,
            ", expected a finite number; a smaller learning rate may help");
    report().diverged = true;
    return false;
  }

  // All members stop as soon as one wants to.
  bool stops() {
    if (!report().stopped_early)
      report().stopped_early = communicator_.all_reduce_sum(hooks_.run.stops() ? 1.0 : 0.0) > 0.0;
    return report().stopped_early;
  }

  Batch gather(std::span<const TokenRow> from, const std::vector<std::size_t>& rows) const {
    std::vector<TokenRow> chosen;
    for (const std::size_t r : rows) chosen.push_back(from[r]);
    return make_batch(tape_.device(), chosen);
  }

  void count_routing() {
    for (const auto& [layer, offsets] : routed_) {
      const std::vector<std::uint32_t> ends = offsets.to_vector<std::uint32_t>();
      std::vector<std::int64_t>& seen = report().expert_tokens[layer];
      seen.resize(ends.size() - 1);
      for (std::size_t e = 0; e + 1 < ends.size(); ++e) seen[e] += ends[e + 1] - ends[e];
    }
    if (!step_.is_recorded()) routed_.clear();
  }

  void tell(std::optional<double> loss, std::optional<double> validation_loss) {
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

  std::size_t batch_size() const { return static_cast<std::size_t>(options_.batch_size); }

  Tape& tape_;
  TapeWeights weights_;
  CausalLm model_;
  TrainState state_;
  SingleProcess alone_;
  Communicator& communicator_;
  ForwardOptions forward_;
  Step step_;
  TrainRows rows_;
  TrainOptions options_;
  TrainHooks hooks_;
  bool counting_ = false;
  std::map<std::int64_t, Buffer> routed_;  // offsets per sparse layer, of the last step
};

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

Trainer::Trainer(const ModelConfig& config, Parameters& parameters, DType compute, LossSignal& signal,
                 Tape& tape, const TrainRows& rows, const TrainOptions& options, const TrainHooks& hooks) {
  check(options);
  require(!rows.train.empty() && !rows.validation.empty(), "train: found ", rows.train.size(),
          " training and ", rows.validation.size(), " validation rows, expected at least one of each");
  run_ = std::make_unique<Run>(config, parameters, compute, signal, tape, rows, options, hooks);
}

Trainer::~Trainer() = default;

TrainState& Trainer::state() { return run_->state(); }

TrainReport Trainer::run() { return run_->run(); }

TrainReport train(const ModelConfig& config, Parameters& parameters, DType compute, LossSignal& signal,
                  Tape& tape, const TrainRows& rows, const TrainOptions& options, const TrainHooks& hooks) {
  return Trainer(config, parameters, compute, signal, tape, rows, options, hooks).run();
}

}  // namespace mixtape
