// Rows that a model writes itself, from several kinds of beginnings.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "mixtape/calib/sample.h"
#include "mixtape/io/chat_template.h"
#include "mixtape/io/tokenizer.h"

namespace mixtape {

// What a chat template puts around the turns of a chat.
struct ChatTurns {
  TokenRow begin;         // before the user's first words
  TokenRow to_assistant;  // between the user's words and the answer
  TokenRow to_user;       // between the answer and the user's next words
};

// Found by rendering a chat of three marked turns. Nothing if the template refuses that, doesn't write the turns out as
// they are, or puts nothing between them.
std::optional<ChatTurns> chat_turns(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                    const ChatOptions& options = {});

// Kinds of beginnings. Each that there is takes an equal part of the rows; the first ones take one more where that
// doesn't come out even. At least one must be there.
struct Beginnings {
  std::optional<std::uint32_t> first = {};  // the token that begins a text, and nothing else
  // The model writes user and assistant, turn after turn, until the row is full; the template stands between them.
  std::optional<ChatTurns> chat = {};
  std::vector<std::uint32_t> ends = {};  // tokens that end a turn, beside the first one of what follows it
  std::vector<TokenRow> texts = {};  // rows whose first kBeginning tokens are continued, in an order by seed
};
inline constexpr std::size_t kBeginning = 8;

// Throws invalid_argument where there is no beginning for one of `rows` rows, or one is longer than the `length`
// positions of a row.
void check(const Beginnings& beginnings, std::int64_t rows, std::int64_t length);

// `rows` rows of length+1 tokens drawn at temperature 1, `batch` at a time; the draws depend on the seed alone.
// Reports tokens as the stage "sampling", and keeps the rows of whole batches under that name (kept_states.h). Throws
// what check throws; interrupted.
std::vector<TokenRow> self_rows(const CausalLm& model, Tape& tape, const Beginnings& beginnings,
                                std::int64_t rows, std::int64_t length, std::int64_t batch,
                                std::uint64_t seed, const RunHooks& hooks = {});

}  // namespace mixtape
