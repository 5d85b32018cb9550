#include "mixtape/calib/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "mixtape/calib/evaluate.h"
#include "mixtape/calib/schedule.h"
#include "mixtape/core/random.h"
#include "mixtape/ops/adam/adam.h"

namespace mixtape {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double mean_magnitude(const Buffer& b) {
  const std::vector<float> values = b.to_vector<float>();
  double sum = 0.0;
  for (const float v : values) sum += std::abs(static_cast<double>(v));
  return values.empty() ? 0.0 : sum / static_cast<double>(values.size());
}

// Optimizer state of everything that trains, and copies of the best values.
class Masters {
 public:
  Masters(const std::vector<NamedVar>& vars, const Parameters& parameters, bool relative) {
    for (const NamedVar& v : vars) {
      const Buffer& p = v.var.value();
      require(p.dtype() == DType::f32, "train: '", v.name, "' is ", p, ", expected f32 masters");
      vars_.push_back(v.var);
      moments_.push_back({p.device().alloc(DType::f32, p.shape()), p.device().alloc(DType::f32, p.shape())});
      units_.push_back(relative ? static_cast<float>(unit(v.name, p, parameters)) : 1.0f);
      best_.push_back(p.device().alloc_uninitialized(DType::f32, p.shape()));
    }
  }

  void clear_gradients() {
    for (const Var& v : vars_) v.clear_grad();
  }

  void step(CommandEncoder& encoder, AdamOptions options, double clip_norm) {
    std::vector<AdamTensor> tensors;
    std::vector<Buffer> gradients;
    for (std::size_t i = 0; i < vars_.size(); ++i) {
      if (!vars_[i].grad()) continue;
      tensors.push_back(
          {vars_[i].value(), vars_[i].grad(), moments_[i].first, moments_[i].second, units_[i]});
      gradients.push_back(vars_[i].grad());
    }
    if (clip_norm > 0.0) options.grad_scale = clip_scale(encoder, gradients, clip_norm);
    adam_step(encoder, tensors, options);
  }

  void save_best(CommandEncoder& encoder) {
    for (std::size_t i = 0; i < vars_.size(); ++i) encoder.copy(vars_[i].value(), best_[i]);
  }
  void restore_best(CommandEncoder& encoder) {
    for (std::size_t i = 0; i < vars_.size(); ++i) encoder.copy(best_[i], vars_[i].value());
  }

 private:
  // Biases move in the unit of their scales; float tensors in their own mean magnitude.
  static double unit(const std::string& name, const Buffer& p, const Parameters& parameters) {
    const auto quantized = parameters.quantized.find(name.substr(0, name.rfind('.')));
    const double magnitude =
        mean_magnitude(quantized == parameters.quantized.end() ? p : quantized->second.scales);
    return std::max(magnitude, 1e-8);
  }

  static float clip_scale(CommandEncoder& encoder, const std::vector<Buffer>& gradients, double clip_norm) {
    const Buffer squares = encoder.device().alloc(DType::f32, {1});
    sum_of_squares(encoder, gradients, squares);
    encoder.commit_and_wait();
    const double norm = std::sqrt(static_cast<double>(squares.to_vector<float>()[0]));
    return norm > clip_norm ? static_cast<float>(clip_norm / norm) : 1.0f;
  }

  std::vector<Var> vars_;
  std::vector<std::pair<Buffer, Buffer>> moments_;
  std::vector<float> units_;
  std::vector<Buffer> best_;
};

// Forward and, where asked, backward of one batch. The head runs on blocks of positions, each of which is
// differentiated at once: no [positions, vocab] tensor exists. Where the device can, a training step is
// recorded when its shape comes for the second time, and replayed from then on.
class Step {
 public:
  Step(const CausalLm& model, LossSignal& signal, Masters& masters, Tape& tape, const ForwardOptions& forward)
      : model_(model), signal_(signal), masters_(masters), tape_(tape), forward_(forward) {}

  // Mean loss over the positions that count; 0 where there are none.
  double run(const Batch& batch, std::span<const std::size_t> rows, bool train) {
    if (batch.total_weight == 0.0) return 0.0;
    if (train && signal_.is_recordable() && tape_.device().backend().can_record()) {
      run_recorded(batch, rows);
    } else {
      signal_.load(batch, rows);
      encode(batch.ids, train ? shares(batch) : Buffer());
    }
    tape_.encoder().commit_and_wait();
    return weighted_sum(losses_, batch.weights) / batch.total_weight;
  }

  // The recorded step's gradients are those of the masters until the next one.
  bool is_recorded() const { return replay_ != nullptr; }

 private:
  void run_recorded(const Batch& batch, std::span<const std::size_t> rows) {
    const bool seen = held_.ids && held_.ids.shape() == batch.ids.shape();
    if (!seen) {
      if (is_recorded()) masters_.clear_gradients();
      replay_ = nullptr;
      held_ = batch;
      held_shares_ = shares(batch);
    } else {
      tape_.encoder().copy(batch.ids, held_.ids);
      tape_.encoder().copy(batch.targets, held_.targets);
      tape_.encoder().copy(shares(batch), held_shares_);
      held_.weights = batch.weights;
      held_.total_weight = batch.total_weight;
    }
    signal_.load(held_, rows);
    const auto work = [&] { encode(held_.ids, held_shares_); };
    if (!seen) return work();
    if (!replay_) replay_ = tape_.encoder().record(work);
    replay_->run();
  }

  // `shares`, each position's part of the batch's loss, asks for gradients; null: losses alone.
  void encode(const Buffer& ids, const Buffer& shares) {
    signal_.start();
    const Var hidden = model_.hidden(ids, forward_);
    const std::int64_t positions = ids.numel();
    const Shape flat{positions, hidden.shape().cols()};
    const Buffer gradient = shares ? tape_.alloc(hidden.dtype(), flat) : Buffer();
    losses_.clear();
    const std::int64_t step = logit_rows(model_.config().vocab_size, tape_.device());
    for (std::int64_t begin = 0; begin < positions; begin += step) {
      const std::int64_t end = std::min(positions, begin + step);
      const Buffer h = hidden.value().reshape(flat).slice(begin, end);
      losses_.push_back(shares ? head(h, shares, begin, end, gradient.slice(begin, end))
                               : signal_.loss(logits(tape_.constant(h)), begin, end).value());
    }
    if (shares) tape_.backward(hidden, gradient.reshape(hidden.shape()));
  }

  // Losses per position of one block; its gradient goes to the hidden states at once.
  Buffer head(const Buffer& h, const Buffer& shares, std::int64_t begin, std::int64_t end,
              const Buffer& gradient) {
    const Var leaf = tape_.parameter(h);
    const Var logits = this->logits(leaf);
    const Buffer dlogits = tape_.alloc(logits.dtype(), logits.shape());
    const Buffer losses = signal_.loss_and_gradient(tape_.encoder(), logits.value(), shares.slice(begin, end),
                                                    begin, end, dlogits);
    tape_.backward(logits, dlogits);
    tape_.encoder().copy(leaf.grad(), gradient);
    return losses;
  }

  Buffer shares(const Batch& batch) const {
    std::vector<float> weights = batch.weights;
    for (float& w : weights) w = static_cast<float>(w / batch.total_weight);
    return Buffer::from(tape_.device(), {batch.ids.numel()}, weights);
  }

  Var logits(const Var& hidden) const {
    return model_.logits(hidden, tape_.device().caps().wants_f32_logits ? DType::f32 : hidden.dtype());
  }

  static double weighted_sum(const std::vector<Buffer>& losses, std::span<const float> weights) {
    double sum = 0.0;
    std::size_t i = 0;
    for (const Buffer& block : losses) {
      for (const float loss : block.to_vector<float>()) {
        if (weights[i++] > 0.0f) sum += static_cast<double>(loss);
      }
    }
    return sum;
  }

  const CausalLm& model_;
  LossSignal& signal_;
  Masters& masters_;
  Tape& tape_;
  const ForwardOptions& forward_;
  std::vector<Buffer> losses_;  // of the last batch, by blocks of positions
  Batch held_;                  // where a recorded step finds its batch
  Buffer held_shares_;
  std::shared_ptr<Replay> replay_;
};

class Trainer {
 public:
  Trainer(const ModelConfig& config, const Parameters& parameters, DType compute, LossSignal& signal,
          Tape& tape, std::span<const TokenRow> train, std::span<const TokenRow> validation,
          const TrainOptions& options, const TrainHooks& hooks)
      : tape_(tape),
        weights_(tape, parameters, options.trainable),
        model_(config, weights_, compute),
        masters_(weights_.trainable(), parameters, options.relative_rate),
        step_(model_, signal, masters_, tape, forward_),
        train_(train),
        validation_(validation),
        options_(options),
        hooks_(hooks) {
    forward_.checkpoint_blocks = options.checkpoint_blocks;
    forward_.on_routing = [this](std::int64_t layer, const Buffer& offsets) {
      if (counting_) routed_.insert_or_assign(layer, offsets);
    };
  }

  TrainReport run(const BatchOrder& order) {
    validate(0);
    const std::int64_t every = options_.validate_every > 0 ? options_.validate_every
                                                           : std::max<std::int64_t>(1, options_.steps / 10);
    for (std::int64_t pass = 0; report_.steps_done < options_.steps && !report_.stopped_early; ++pass) {
      const auto batches = order(pass);
      require(!batches.empty(), "train: no batch, found ", train_.size(), " training rows");
      for (const auto& rows : batches) {
        train_step(rows);
        const std::int64_t step = report_.steps_done;
        if (hooks_.should_stop && hooks_.should_stop()) report_.stopped_early = true;
        if (step % every == 0 || step == options_.steps || report_.stopped_early) validate(step);
        if (step == options_.steps || report_.stopped_early) break;
      }
    }
    if (options_.keep_best) masters_.restore_best(tape_.encoder());
    tape_.encoder().commit_and_wait();
    return std::move(report_);
  }

 private:
  void train_step(const std::vector<std::size_t>& rows) {
    const auto start = std::chrono::steady_clock::now();
    const Batch batch = gather(train_, rows);
    counting_ = true;
    const double loss = step_.run(batch, rows, true);
    counting_ = false;
    ++report_.steps_done;
    if (batch.total_weight > 0.0) {
      count_routing();
      update_masters();
    } else {
      ++report_.empty_batches;
    }
    report_.tokens_seen += static_cast<std::int64_t>(batch.total_weight);
    report_.seconds += seconds_since(start);
    report_.losses.push_back(loss);
    tell(loss, nullptr);
  }

  void update_masters() {
    AdamOptions adam;
    adam.step = report_.steps_done;
    adam.lr = static_cast<float>(rate(adam.step));
    adam.weight_decay = static_cast<float>(options_.weight_decay);
    masters_.step(tape_.encoder(), adam, options_.clip_norm);
    tape_.encoder().commit();
    if (!step_.is_recorded()) masters_.clear_gradients();
  }

  double rate(std::int64_t step) const {
    if (options_.constant_rate) return options_.learning_rate;
    const auto warmup =
        static_cast<std::int64_t>(std::ceil(options_.warmup_share * static_cast<double>(options_.steps)));
    return warmup_cosine(options_.learning_rate, step, warmup, options_.steps, options_.final_rate_share);
  }

  void validate(std::int64_t step) {
    const NoGrad guard(tape_);
    double sum = 0.0, weight = 0.0;
    for (std::size_t begin = 0; begin < validation_.size(); begin += batch_size()) {
      std::vector<std::size_t> rows(std::min(batch_size(), validation_.size() - begin));
      std::iota(rows.begin(), rows.end(), begin);
      const Batch batch = gather(validation_, rows);
      for (std::size_t& r : rows) r += train_.size();
      sum += step_.run(batch, rows, false) * batch.total_weight;
      weight += batch.total_weight;
    }
    const ValidationPoint point{step, weight > 0.0 ? sum / weight : 0.0};
    const bool is_best = step == 0 || point.loss < best_;
    if (is_best) {
      best_ = point.loss;
      report_.best_step = step;
      masters_.save_best(tape_.encoder());
    }
    report_.validation.push_back(point);
    tell(report_.losses.empty() ? 0.0 : report_.losses.back(), &report_.validation.back());
  }

  Batch gather(std::span<const TokenRow> from, const std::vector<std::size_t>& rows) const {
    std::vector<TokenRow> chosen;
    for (const std::size_t r : rows) chosen.push_back(from[r]);
    return make_batch(tape_.device(), chosen);
  }

  void count_routing() {
    for (const auto& [layer, offsets] : routed_) {
      const std::vector<std::uint32_t> ends = offsets.to_vector<std::uint32_t>();
      std::vector<std::int64_t>& seen = report_.expert_tokens[layer];
      seen.resize(ends.size() - 1);
      for (std::size_t e = 0; e + 1 < ends.size(); ++e) seen[e] += ends[e + 1] - ends[e];
    }
    if (!step_.is_recorded()) routed_.clear();
  }

  void tell(double loss, const ValidationPoint* validation) const {
    if (!hooks_.progress) return;
    const double rate =
        report_.seconds > 0.0 ? static_cast<double>(report_.tokens_seen) / report_.seconds : 0.0;
    hooks_.progress({report_.steps_done, options_.steps, loss, rate, validation});
  }

  std::size_t batch_size() const { return static_cast<std::size_t>(options_.batch_size); }

  Tape& tape_;
  TapeWeights weights_;
  CausalLm model_;
  Masters masters_;
  ForwardOptions forward_;
  Step step_;
  std::span<const TokenRow> train_, validation_;
  const TrainOptions& options_;
  const TrainHooks& hooks_;
  TrainReport report_;
  double best_ = 0.0;
  bool counting_ = false;
  std::map<std::int64_t, Buffer> routed_;  // offsets per sparse layer, of the last step
};

}  // namespace

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

TrainReport train(const ModelConfig& config, const Parameters& parameters, DType compute, LossSignal& signal,
                  Tape& tape, std::span<const TokenRow> train_rows, std::span<const TokenRow> validation_rows,
                  const BatchOrder& order, const TrainOptions& options, const TrainHooks& hooks) {
  require(options.steps > 0, "train: steps is ", options.steps, ", expected 1 or more");
  require(options.batch_size > 0, "train: batch size is ", options.batch_size, ", expected 1 or more");
  require(!train_rows.empty() && !validation_rows.empty(), "train: found ", train_rows.size(),
          " training and ", validation_rows.size(), " validation rows, expected at least one of each");
  Trainer trainer(config, parameters, compute, signal, tape, train_rows, validation_rows, options, hooks);
  return trainer.run(order);
}

}  // namespace mixtape
