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
        communicator_(hooks.communicator ? *hooks.communicator : alone_),
        weights_(tape, parameters, options.trainable),
        model_(config, weights_, compute),
        state_{make_optimizer(weights_.trainable(), parameters, options)},
        step_(model_, signal, tape, communicator_, forward_),
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
    const std::span<const std::size_t> mine = share_of(rows, communicator_);
    const Batch batch = gather(mine);
    const BatchLoss result = step_.train(batch, mine, optimizer);
    counting_ = false;
    if (result.positions > 0.0 && std::isfinite(result.mean())) count_routing(batch.total_weight > 0.0);
    return result;
  }

  BatchLoss evaluate(std::span<const std::size_t> rows) override {
    const std::span<const std::size_t> mine = share_of(rows, communicator_);
    return step_.evaluate(gather(mine), mine);
  }

  bool overwrites_gradients() const override { return step_.is_recorded(); }

 private:
  // Nothing where they have no position.
  Batch gather(std::span<const std::size_t> rows) const {
    std::vector<TokenRow> chosen;
    for (const std::size_t r : rows) {
      const bool trains = r < rows_.train.size();
      chosen.push_back(trains ? rows_.train[r] : rows_.validation[r - rows_.train.size()]);
    }
    return count_positions(chosen) > 0 ? make_batch(tape_.device(), chosen) : Batch();
  }

  // By all members; `has_run`: this one's share had positions.
  void count_routing(bool has_run) {
    std::vector<double> tokens;
    for_each_sparse_layer([&](std::int64_t layer, std::int64_t experts) {
      std::vector<std::uint32_t> ends(static_cast<std::size_t>(experts) + 1);
      if (has_run) ends = routed_.at(layer).to_vector<std::uint32_t>();
      for (std::size_t e = 0; e + 1 < ends.size(); ++e) tokens.push_back(ends[e + 1] - ends[e]);
    });
    if (tokens.empty()) return;
    communicator_.all_reduce_sum(tokens);
    std::size_t at = 0;
    for_each_sparse_layer([&](std::int64_t layer, std::int64_t experts) {
      std::vector<std::int64_t>& seen = state_.report.expert_tokens[layer];
      seen.resize(static_cast<std::size_t>(experts));
      for (std::int64_t& count : seen) count += static_cast<std::int64_t>(tokens[at++]);
    });
    if (!step_.is_recorded()) routed_.clear();
  }

  template <class Fn>
  void for_each_sparse_layer(const Fn& fn) const {  // fn(layer, experts)
    const auto& layers = model_.config().layers;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const auto* mlp = std::get_if<SparseMlpSpec>(&layers[i].mlp);
      if (mlp) fn(static_cast<std::int64_t>(i), mlp->experts);
    }
  }

  Tape& tape_;
  SingleProcess alone_;
  Communicator& communicator_;
  TapeWeights weights_;
  CausalLm model_;
  TrainState state_;
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
    kept.keep_if_due(state.report.stopped_early);
  };
  trainer = std::make_unique<Trainer>(config, parameters, compute, signal, tape, rows, options, keeping);
  if (const auto file = kept.find()) trainer->state().load(*file);
  const TrainReport report = trainer->run();
  if (!report.stopped_early) kept.keep();
  return report;
}

}  // namespace mixtape
