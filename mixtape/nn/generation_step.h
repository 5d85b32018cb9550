// The next token of each row of a batch, again and again: recorded, where a plain pass spends its time on telling the
// device what to do.
#pragma once

#include <vector>

#include "mixtape/nn/causal_lm.h"

namespace mixtape {

class GenerationStep {
 public:
  // Whether sequences can grow to `length` tokens so: on devices that record, by weights that stay there, within the
  // windows of attention and what rotary frequencies allow.
  static bool is_possible(const CausalLm& model, const Device& device, std::int64_t length);

  // Of sequences of at most `most` tokens. A pass has filled the state, and nobody else uses it until the last step.
  GenerationStep(const CausalLm& model, Tape& tape, GenerationState& state, std::int64_t most);

  // f32 [B, V] after `ids`, one for each row, which follow what the state holds and are added to it; the buffer holds them
  // until the next step. Throws invalid_argument where `most` tokens are there already.
  Buffer logits(const std::vector<std::uint32_t>& ids);

 private:
  void make_room();
  void encode();

  const CausalLm& model_;
  Tape& tape_;
  GenerationState& state_;
  std::int64_t most_, room_ = 0;
  Buffer ids_, positions_, lengths_;  // where a recorded step finds them
  Buffer logits_;
  bool is_warm_ = false;  // a step has run in this room
  std::shared_ptr<Replay> replay_;
};

}  // namespace mixtape
