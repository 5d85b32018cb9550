#include "mixtape/calib/trainer.h"

#include <cmath>

#include "mixtape/calib/kept_states.h"
#include "mixtape/calib/step.h"

namespace mixtape {

class Trainer::Run final : public Objective {
 public:
  Run(const ModelConfig& config, Parameters& parameters, DType compute, LossSignal& signal, Tape& tape,
      const TrainRows& rows, const TrainOptions& options, const TrainHooks& hooks)
      : tape_(tape),
        weights_(tape, parameters, options.trainable),
        model_(config, weights_, compute),
        state_{make_optimizer(weights_.trainable(), parameters, options)},
        step_(model_, signal, tape, hooks.communicator ? *hooks.communicator : alone_, forward_),
        rows_(rows),
        loop_(*this, state_, {rows.train.size(), rows.validation.size(), rows.order}, options, hooks) {
    forward_.checkpoint_blocks = options.checkpoint_blocks;
    forward_.on_routing = [this](std::int64_t layer, const Buffer& offsets) {
      if (counting_) routed_.insert_or_assign(layer, offsets);
    };
  }

  TrainState& state() { return state_; }

  TrainReport run() {
    loop_.run();
    return state_.report;
  }

  BatchLoss train(std::span<const std::size_t> rows, const Optimizer& optimizer) override {
    counting_ = true;
    const BatchLoss result = step_.train(gather(rows), rows, optimizer);
    counting_ = false;
    if (result.positions > 0.0 && std::isfinite(result.mean())) count_routing();
    return result;
  }

  BatchLoss evaluate(std::span<const std::size_t> rows) override {
    return step_.evaluate(gather(rows), rows);
  }

  bool overwrites_gradients() const override { return step_.is_recorded(); }

 private:
  Batch gather(std::span<const std::size_t> rows) const {
    std::vector<TokenRow> chosen;
    for (const std::size_t r : rows) {
      const bool trains = r < rows_.train.size();
      chosen.push_back(trains ? rows_.train[r] : rows_.validation[r - rows_.train.size()]);
    }
    return make_batch(tape_.device(), chosen);
  }

  void count_routing() {
    for (const auto& [layer, offsets] : routed_) {
      const std::vector<std::uint32_t> ends = offsets.to_vector<std::uint32_t>();
      std::vector<std::int64_t>& seen = state_.report.expert_tokens[layer];
      seen.resize(ends.size() - 1);
      for (std::size_t e = 0; e + 1 < ends.size(); ++e) seen[e] += ends[e + 1] - ends[e];
    }
    if (!step_.is_recorded()) routed_.clear();
  }

  Tape& tape_;
  TapeWeights weights_;
  CausalLm model_;
  TrainState state_;
  SingleProcess alone_;
  ForwardOptions forward_;
  Step step_;
  TrainRows rows_;
  TrainLoop loop_;
  bool counting_ = false;
  std::map<std::int64_t, Buffer> routed_;  // offsets per sparse layer, of the last step
};

Trainer::Trainer(const ModelConfig& config, Parameters& parameters, DType compute, LossSignal& signal,
                 Tape& tape, const TrainRows& rows, const TrainOptions& options, const TrainHooks& hooks) {
  run_ = std::make_unique<Run>(config, parameters, compute, signal, tape, rows, options, hooks);
}

Trainer::~Trainer() = default;

TrainState& Trainer::state() { return run_->state(); }

TrainReport Trainer::run() { return run_->run(); }

TrainReport train(const ModelConfig& config, Parameters& parameters, DType compute, LossSignal& signal,
                  Tape& tape, const TrainRows& rows, const TrainOptions& options, const TrainHooks& hooks) {
  std::unique_ptr<Trainer> trainer;
  const KeptStage kept(hooks.run, "training",
                       [&](const std::filesystem::path& file) { trainer->state().save(file); });
  TrainHooks keeping = hooks;
  keeping.checkpoint = [&](const TrainState& state) {
    if (hooks.checkpoint) hooks.checkpoint(state);
    kept.keep_if_due();
  };
  trainer = std::make_unique<Trainer>(config, parameters, compute, signal, tape, rows, options, keeping);
  if (const auto file = kept.find()) trainer->state().load(*file);
  const TrainReport report = trainer->run();
  if (!report.stopped_early) kept.keep();
  return report;
}

}  // namespace mixtape
