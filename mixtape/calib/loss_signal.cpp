#include "mixtape/calib/loss_signal.h"

#include <cmath>

#include "mixtape/calib/logit_blocks.h"
#include "mixtape/ops/cross_entropy/cross_entropy.h"

namespace mixtape {
namespace {

Buffer new_f32(const Buffer& logits, std::int64_t columns) {  // [rows, columns]
  return logits.device().alloc_uninitialized(DType::f32, {logits.shape().rows(), columns});
}

Buffer new_losses(const Buffer& logits) {
  return logits.device().alloc_uninitialized(DType::f32, {logits.shape().rows()});
}

Buffer full_losses(CommandEncoder& encoder, const Buffer& teacher, const Buffer& logits, float temperature,
                   const LogitGradient& gradient) {
  const Buffer losses = new_losses(logits);
  if (gradient.dlogits) {
    kl_div_forward_backward(encoder, teacher, logits, temperature, gradient.shares, losses, gradient.dlogits);
  } else {
    kl_div_forward(encoder, teacher, logits, temperature, losses, new_f32(logits, kKlStats));
  }
  return losses;
}

}  // namespace

Buffer NextToken::losses(CommandEncoder& encoder, const Buffer& logits, std::int64_t begin, std::int64_t end,
                         const LogitGradient& gradient) {
  const Buffer losses = new_losses(logits), targets = targets_.slice(begin, end);
  if (gradient.dlogits) {
    cross_entropy_forward_backward(encoder, logits, targets, gradient.shares, losses, gradient.dlogits);
  } else {
    cross_entropy_forward(encoder, logits, targets, losses, new_f32(logits, 2));
  }
  return losses;
}

void LiveTeacher::load(const Batch& batch, std::span<const std::size_t> rows) {
  ids_ = batch.ids;
  row_ = rows[0];
}

void LiveTeacher::start() {
  const NoGrad guard(tape_);
  hidden_ = row_ < kept_from_ ? hidden_rows(teacher_, ids_) : kept_.of(teacher_, ids_, row_, tape_);
}

Buffer LiveTeacher::losses(CommandEncoder& encoder, const Buffer& logits, std::int64_t begin,
                           std::int64_t end, const LogitGradient& gradient) {
  const Buffer teacher = teacher_.logits(tape_.constant(hidden_.slice(begin, end)), logits.dtype()).value();
  if (options_.top_k == 0) return full_losses(encoder, teacher, logits, options_.temperature, gradient);
  const TopKTargets targets = make_top_k_targets(encoder, teacher, options_.top_k, options_.temperature);
  return top_k_losses(encoder, targets, logits, options_, gradient);
}

Buffer top_k_losses(CommandEncoder& encoder, const TopKTargets& targets, const Buffer& logits,
                    const KlOptions& options, const LogitGradient& gradient) {
  const Buffer losses = new_losses(logits), stats = new_f32(logits, kKlStats);
  kl_div_top_k_forward(encoder, targets, logits, options.temperature, options.rest_bucket, losses, stats);
  if (gradient.dlogits) {
    kl_div_top_k_backward(encoder, targets, logits, options.temperature, options.rest_bucket, stats,
                          gradient.shares, gradient.dlogits);
  }
  return losses;
}

void check(const KlOptions& options, std::int64_t vocab_size) {
  require(std::isfinite(options.temperature) && options.temperature > 0.0f, "loss: temperature is ",
          options.temperature, ", expected a positive number");
  require(options.top_k >= 0 && options.top_k <= vocab_size, "loss: top_k is ", options.top_k,
          ", expected 0 to the vocabulary's ", vocab_size);
}

}  // namespace mixtape
