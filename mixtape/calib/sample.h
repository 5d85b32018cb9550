// Text from a model, token by token.
#pragma once

#include <functional>
#include <vector>

#include "mixtape/calib/data.h"
#include "mixtape/core/run_hooks.h"
#include "mixtape/nn/causal_lm.h"

namespace mixtape {

struct SampleOptions {
  double temperature = 1.0;  // 0: the most probable token
  double top_p = 1.0;        // keeps the most probable tokens that together reach this probability
  std::uint64_t seed = 0;
  std::int64_t top_k = 0;  // keeps so many of the most probable tokens; 0: all
  double min_p = 0.0;      // keeps tokens of at least this share of the largest probability
  // Logits of the tokens among a row's last `repeat_last` are divided by it where positive, else multiplied.
  double repeat_penalty = 1.0;
  std::int64_t repeat_last = 64;
  std::vector<std::uint32_t> stop = {};  // a row that drew one of these gets no further tokens; empty: never
  // What stands between the turns of a chat, used in turn: a row that draws the first token of the next one, or one of
  // `stop`, gets all of it, and goes on. Empty: there are no turns.
  std::vector<TokenRow> turns = {};
};

// Continues each prompt (all of one length) by up to `count` tokens. The draw depends on seed, row and
// position alone. on_token(row, id) is called in order, row by row for each position. Throws interrupted
// between positions, format for a NaN among the logits.
// A `state` holds the first state->length tokens of each prompt, fewer than all; at the end, also where it throws, it
// holds those and what was seen after them: never the last token that was drawn.
std::vector<TokenRow> sample(const CausalLm& model, Tape& tape, const std::vector<TokenRow>& prompts,
                             std::int64_t count, const SampleOptions& options,
                             const std::function<void(std::size_t row, std::uint32_t id)>& on_token = {},
                             const RunHooks& hooks = {}, GenerationState* state = nullptr);

}  // namespace mixtape
