// The loss that a model is trained on: the next token, or a teacher's logits computed beside the model
// (cached_teacher.h: read from files).
#pragma once

#include <limits>
#include <span>

#include "mixtape/calib/data.h"
#include "mixtape/calib/kept_hidden.h"
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

// Runs the teacher beside the student. Its final activations of batches of rows `kept_from` and later, which come again
// and again, are computed once and held.
class LiveTeacher final : public LossSignal {
 public:
  static constexpr std::size_t kNothingKept = std::numeric_limits<std::size_t>::max();

  LiveTeacher(const CausalLm& teacher, Tape& tape, const KlOptions& options,
              std::size_t kept_from = kNothingKept)
      : teacher_(teacher), tape_(tape), options_(options), kept_from_(kept_from) {}
  void load(const Batch& batch, std::span<const std::size_t> rows) override;
  void start() override;
  bool is_recordable() const override { return !teacher_.is_streamed(); }
  Buffer losses(CommandEncoder& encoder, const Buffer& logits, std::int64_t begin, std::int64_t end,
                const LogitGradient& gradient) override;

 private:
  const CausalLm& teacher_;
  Tape& tape_;
  KlOptions options_;
  std::size_t kept_from_;
  KeptHidden kept_;
  Buffer ids_;           // of the batch
  std::size_t row_ = 0;  // its first one
  Buffer hidden_;        // [B*S, D]
};

// kl_div of logits [rows, V] from stored targets, as LossSignal::losses.
Buffer top_k_losses(CommandEncoder& encoder, const TopKTargets& targets, const Buffer& logits,
                    const KlOptions& options, const LogitGradient& gradient);

// Throws invalid_argument for a temperature that isn't a positive number, or a top_k outside 0..vocab_size.
void check(const KlOptions& options, std::int64_t vocab_size);

}  // namespace mixtape
