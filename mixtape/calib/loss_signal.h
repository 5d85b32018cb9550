// The loss that a model is trained on: the next token, or a teacher's logits computed beside the model
// (cached_teacher.h: read from files).
#pragma once

#include <span>

#include "mixtape/calib/data.h"
#include "mixtape/nn/causal_lm.h"
#include "mixtape/ops/kl_div/kl_div.h"

namespace mixtape {

// Where the gradient of a block of logits goes.
struct LogitGradient {
  Buffer shares;   // f32 [positions]: upstream weight of each position's loss
  Buffer dlogits;  // like the logits, to be overwritten; null: losses alone are wanted
};

class LossSignal {
 public:
  virtual ~LossSignal() = default;
  // Brings what the batch needs to the device, for batches of one shape to the same place each time. Its rows
  // are numbered as training rows followed by validation rows.
  virtual void load(const Batch& batch, std::span<const std::size_t> rows) = 0;
  // Encodes what comes before the first loss of the batch.
  virtual void start() {}
  // Whether start() and what follows bring nothing more to the device.
  virtual bool is_recordable() const { return true; }
  // Loss f32 [end-begin] of the model's logits [end-begin, V] for positions [begin, end) of the batch, and
  // their gradient where one is wanted. Encoded, not waited for.
  virtual Buffer losses(CommandEncoder& encoder, const Buffer& logits, std::int64_t begin, std::int64_t end,
                        const LogitGradient& gradient = {}) = 0;
};

// -log p(next token).
class NextToken final : public LossSignal {
 public:
  void load(const Batch& batch, std::span<const std::size_t>) override { targets_ = batch.targets; }
  Buffer losses(CommandEncoder& encoder, const Buffer& logits, std::int64_t begin, std::int64_t end,
                const LogitGradient& gradient) override;

 private:
  Buffer targets_;
};

// Runs the teacher beside the student.
class LiveTeacher final : public LossSignal {
 public:
  LiveTeacher(const CausalLm& teacher, Tape& tape, const KlOptions& options)
      : teacher_(teacher), tape_(tape), options_(options) {}
  void load(const Batch& batch, std::span<const std::size_t>) override { ids_ = batch.ids; }
  void start() override;
  bool is_recordable() const override { return !teacher_.is_streamed(); }
  Buffer losses(CommandEncoder& encoder, const Buffer& logits, std::int64_t begin, std::int64_t end,
                const LogitGradient& gradient) override;

 private:
  const CausalLm& teacher_;
  Tape& tape_;
  KlOptions options_;
  Buffer ids_;     // of the batch
  Buffer hidden_;  // [B*S, D]
};

// kl_div of logits [rows, V] from stored targets, as LossSignal::losses.
Buffer top_k_losses(CommandEncoder& encoder, const TopKTargets& targets, const Buffer& logits,
                    const KlOptions& options, const LogitGradient& gradient);

// Throws invalid_argument for a temperature that isn't a positive number, or a top_k outside 0..vocab_size.
void check(const KlOptions& options, std::int64_t vocab_size);

}  // namespace mixtape
