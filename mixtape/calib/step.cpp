#include "mixtape/calib/step.h"

#include "mixtape/calib/logit_blocks.h"

namespace mixtape {

Step::Result Step::evaluate(const Batch& batch, std::span<const std::size_t> rows) {
  const double positions = communicator_.sum_of(batch.total_weight);
  if (batch.total_weight > 0.0) {
    const NoGrad guard(tape_);
    signal_.load(batch, rows);
    encode(batch.ids, Buffer());
    tape_.encoder().commit_and_wait();
  }
  return result(batch, positions);
}

Step::Result Step::train(const Batch& batch, std::span<const std::size_t> rows, const Optimizer& optimizer) {
  const double positions = communicator_.sum_of(batch.total_weight);
  if (batch.total_weight > 0.0) {
    const Buffer shares = this->shares(batch, positions);
    if (signal_.is_recordable() && tape_.device().backend().can_record()) {
      run_recorded(batch, shares, rows, optimizer);
    } else {
      signal_.load(batch, rows);
      encode(batch.ids, shares);
    }
    tape_.encoder().commit_and_wait();
  } else {
    optimizer.zero_gradients();
  }
  return result(batch, positions);
}

Step::Result Step::result(const Batch& batch, double positions) {
  double sum = 0.0;
  std::size_t i = 0;
  if (batch.total_weight == 0.0) losses_.clear();
  for (const Buffer& block : losses_) {
    for (const float loss : block.to_vector<float>()) {
      if (batch.weights[i++] > 0.0f) sum += static_cast<double>(loss);
    }
  }
  return {communicator_.sum_of(sum), positions};
}

void Step::run_recorded(const Batch& batch, const Buffer& shares, std::span<const std::size_t> rows,
                        const Optimizer& optimizer) {
  const bool seen = held_.ids && held_.ids.shape() == batch.ids.shape();
  if (!seen) {
    if (is_recorded()) optimizer.clear_gradients();
    replay_ = nullptr;
    held_ = batch;
    held_shares_ = shares;
  } else {
    tape_.encoder().copy(batch.ids, held_.ids);
    tape_.encoder().copy(batch.targets, held_.targets);
    tape_.encoder().copy(shares, held_shares_);
    held_.weights = batch.weights;
    held_.total_weight = batch.total_weight;
  }
  signal_.load(held_, rows);
  const auto work = [&] { encode(held_.ids, held_shares_); };
  if (!seen) return work();
  if (!replay_) {
    replay_ = tape_.encoder().record(work);
    replayed_losses_ = losses_;
  }
  replay_->run();
  losses_ = replayed_losses_;  // a validation since then has put its own there
}

// `shares`, each position's part of the batch's loss, asks for gradients; null: losses alone.
void Step::encode(const Buffer& ids, const Buffer& shares) {
  signal_.start();
  model_.weights().renew();
  const Var hidden = model_.hidden(ids, forward_);  // [B, S, D]
  const std::int64_t positions = ids.numel();
  const Shape flat{positions, hidden.shape().cols()};
  const Buffer gradient = shares ? tape_.alloc(hidden.dtype(), flat) : Buffer();
  losses_.clear();
  for_each_logit_block(model_, positions, tape_.device(), [&](std::int64_t begin, std::int64_t end) {
    const Buffer h = hidden.value().reshape(flat).slice(begin, end);
    losses_.push_back(shares
                          ? head(h, shares.slice(begin, end), begin, end, gradient.slice(begin, end))
                          : signal_.losses(tape_.encoder(), logits(tape_.constant(h)).value(), begin, end));
  });
  if (!shares) return;
  tape_.backward(hidden, gradient.reshape(hidden.shape()));
  model_.weights().pass_gradients();
}

// Losses per position of one block; its gradient goes to the hidden states [end-begin, D] at once.
Buffer Step::head(const Buffer& h, const Buffer& shares, std::int64_t begin, std::int64_t end,
                  const Buffer& gradient) {
  const Var leaf = tape_.parameter(h);
  const Var logits = this->logits(leaf);  // [end-begin, V]
  const Buffer dlogits = tape_.alloc(logits.dtype(), logits.shape());
  const Buffer losses = signal_.losses(tape_.encoder(), logits.value(), begin, end, {shares, dlogits});
  tape_.backward(logits, dlogits);
  tape_.encoder().copy(leaf.grad(), gradient);
  return losses;
}

Buffer Step::shares(const Batch& batch, double positions) const {
  std::vector<float> weights = batch.weights;
  for (float& w : weights) w = static_cast<float>(w / positions);
  return Buffer::from(tape_.device(), {batch.ids.numel()}, weights);
}

Var Step::logits(const Var& hidden) const {
  return model_.logits(hidden, tape_.device().caps().wants_f32_logits ? DType::f32 : hidden.dtype());
}

}  // namespace mixtape
