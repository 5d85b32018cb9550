// The output layer on blocks of positions: no [positions, vocab] tensor exists at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "mixtape/nn/causal_lm.h"

namespace mixtape {

// Rows of logits computed at a time: [rows, vocab] scratch stays near 50 MB on the CPU; on a GPU, whose
// products want long operands, near 160 million elements.
std::int64_t logit_rows(std::int64_t vocab_size, const Device& device);

// fn(begin, end) for block after block of `positions` rows, the last one shorter.
template <class Fn>
void for_each_logit_block(const CausalLm& model, std::int64_t positions, const Device& device, const Fn& fn) {
  const std::int64_t step = logit_rows(model.config().vocab_size, device);
  for (std::int64_t begin = 0; begin < positions; begin += step) fn(begin, std::min(positions, begin + step));
}

// The model's final activations for ids u32 [B, S], by position: [B*S, D].
Buffer hidden_rows(const CausalLm& model, const Buffer& ids);

// The same from position `first` of each row on: [B*(S-first), D].
Buffer hidden_rows(const CausalLm& model, const Buffer& ids, std::int64_t first, Tape& tape);

}  // namespace mixtape
