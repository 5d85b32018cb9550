// How good a model is on given text, alone and against a teacher.
#pragma once

#include <span>
#include <string>

#include "mixtape/calib/data.h"
#include "mixtape/calib/evaluation.h"
#include "mixtape/calib/kept_hidden.h"
#include "mixtape/core/run_hooks.h"
#include "mixtape/nn/causal_lm.h"

namespace mixtape {

// What a model is compared with: the teacher's side, batch after batch, in the order of the rows.
class Reference {
 public:
  struct Block {
    Buffer logits;  // f32 [positions, vocab], up to a constant per position; -inf: probability 0
    Buffer nll;     // f32 [positions]: of the targets
    // By position, the probability that the logits stand for, where some tokens' is not known: the KL sums over the
    // others alone. Empty: all of it.
    std::vector<double> known = {};
  };
  virtual ~Reference() = default;
  virtual std::int64_t vocab_size() const = 0;
  // Positions of each row before this one are not compared and don't count; rows are of one length unless it is 0.
  virtual std::int64_t first_position() const { return 0; }
  // What follows is of this batch, whose first row is number `first_row` of all.
  virtual void enter(const Batch& batch, std::size_t first_row) = 0;
  // Of the batch's compared positions begin .. end-1, row after row; targets u32 [end - begin].
  virtual Block block(std::int64_t begin, std::int64_t end, const Buffer& targets) = 0;
};

// A model that runs beside the other. Where they are kept, its final activations of each batch are computed once: the
// same rows, in the same batches, are compared with further models in less time.
class ModelReference final : public Reference {
 public:
  enum class Keeps { nothing, activations };

  ModelReference(const CausalLm& teacher, Tape& tape, Keeps keeps = Keeps::nothing)
      : teacher_(teacher), tape_(tape), keeps_(keeps) {}

  std::int64_t vocab_size() const override { return teacher_.config().vocab_size; }
  void enter(const Batch& batch, std::size_t first_row) override;
  Block block(std::int64_t begin, std::int64_t end, const Buffer& targets) override;

 private:
  const CausalLm& teacher_;
  Tape& tape_;
  Keeps keeps_;
  KeptHidden kept_;
  Buffer hidden_;  // [B*S, D] of the batch
};

// `teacher` may be null, and of other sizes than the model but for the vocabulary. Reports positions to
// `hooks` under the name `stage`. Throws invalid_argument for a batch size below 1 or vocabularies of two
// sizes, interrupted between batches. The figures of whole batches are kept under that name too (kept_states.h).
Evaluation evaluate(const CausalLm& model, const CausalLm* teacher, Tape& tape,
                    std::span<const TokenRow> rows, std::int64_t batch_size, const RunHooks& hooks = {},
                    const std::string& stage = "evaluating");

// The same against another kind of teacher.
Evaluation evaluate(const CausalLm& model, Reference& reference, Tape& tape, std::span<const TokenRow> rows,
                    std::int64_t batch_size, const RunHooks& hooks = {},
                    const std::string& stage = "evaluating");

}  // namespace mixtape
