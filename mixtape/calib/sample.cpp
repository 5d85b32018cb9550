#include "mixtape/calib/sample.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "mixtape/nn/generation_step.h"
#include "mixtape/ops/sampling/sampling.h"
#include "mixtape/ops/take_along_axis/take_along_axis.h"

namespace mixtape {
namespace {

bool contains(const std::vector<std::uint32_t>& ids, std::uint32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Where each row stands between the turns of a chat.
class Turns {
 public:
  Turns(const SampleOptions& options, std::size_t rows) : o_(options), rows_(rows) {}

  // What row b gets where it drew `id`.
  std::uint32_t next(std::size_t b, std::uint32_t id) {
    Row& row = rows_[b];
    if (row.given == 0 && (id == o_.turns[row.turn].front() || contains(o_.stop, id)))
      row.given = o_.turns[row.turn].size();
    if (row.given == 0) return id;
    const TokenRow& turn = o_.turns[row.turn];
    const std::uint32_t token = turn[turn.size() - row.given--];
    if (row.given == 0) row.turn = (row.turn + 1) % o_.turns.size();
    return token;
  }

 private:
  struct Row {
    std::size_t turn = 0;   // the next one
    std::size_t given = 0;  // tokens of it that are still to come
  };
  const SampleOptions& o_;
  std::vector<Row> rows_;
};

// Columns from `begin` on.
Buffer id_buffer(const Device& device, const std::vector<TokenRow>& rows, std::int64_t begin) {
  std::vector<std::uint32_t> ids;
  for (const TokenRow& row : rows) ids.insert(ids.end(), row.begin() + begin, row.end());
  return Buffer::from(device, {std::ssize(rows), std::ssize(rows[0]) - begin}, ids);
}

// Hidden states of the last of each row's positions: [rows, positions, hidden] -> [rows, hidden].
Buffer last_positions(Tape& tape, const Buffer& hidden) {
  const std::int64_t rows = hidden.shape()[0], positions = hidden.shape()[1], width = hidden.shape()[2];
  const Buffer all = hidden.reshape({rows * positions, width});
  if (positions == 1) return all;
  const Buffer last = tape.alloc(all.dtype(), {rows, width});
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t at = (r + 1) * positions - 1;
    tape.encoder().copy(all.slice(at, at + 1), last.slice(r, r + 1));
  }
  return last;
}

// Of the model after all that was seen; f32 [rows, vocab]. The step is made where there is one more token than the state
// holds, and given up with the state.
Buffer next_logits(const CausalLm& model, Tape& tape, const std::vector<TokenRow>& seen, std::int64_t most,
                   GenerationState& state, std::optional<GenerationStep>& step) {
  const std::int64_t length = std::ssize(seen[0]);
  if (model.starts_over(state.length, length)) {
    step.reset();
    state = {};
  }
  if (state.length > 0 && length == state.length + 1 &&
      GenerationStep::is_possible(model, tape.device(), most)) {
    if (!step) step.emplace(model, tape, state, most);
    std::vector<std::uint32_t> last;
    for (const TokenRow& row : seen) last.push_back(row.back());
    return step->logits(last);
  }
  ForwardOptions forward;
  forward.state = &state;
  const Var hidden = model.hidden(id_buffer(tape.device(), seen, state.length), forward);
  return model.logits(tape.constant(last_positions(tape, hidden.value()))).value();
}

// The tokens among the last `count` of a row, each once.
TokenRow last_tokens(const TokenRow& row, std::int64_t count) {
  TokenRow ids(row.end() - std::min(count, std::ssize(row)), row.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// Makes the tokens that each row has seen lately less probable; logits [rows, vocab].
void penalize(Tape& tape, const Buffer& logits, const std::vector<TokenRow>& seen, const SampleOptions& o) {
  std::vector<TokenRow> lists;
  std::size_t longest = 0;
  for (const TokenRow& row : seen) {
    lists.push_back(last_tokens(row, o.repeat_last));
    longest = std::max(longest, lists.back().size());
  }
  std::vector<std::uint32_t> places;  // a shorter list's last token again, which then changes by 0
  for (TokenRow list : lists) {
    list.resize(longest, list.back());
    places.insert(places.end(), list.begin(), list.end());
  }
  const Shape shape{std::ssize(seen), static_cast<std::int64_t>(longest)};
  const Buffer ids = Buffer::from(tape.device(), shape, places);
  const Buffer found = tape.alloc(DType::f32, shape);
  take_along_axis_forward(tape.encoder(), logits, ids, found);
  tape.encoder().commit_and_wait();
  std::vector<float> changes = found.to_vector<float>();
  const auto penalty = static_cast<float>(o.repeat_penalty);
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const bool is_filler = i % longest >= lists[i / longest].size();
    const float x = changes[i];
    changes[i] = is_filler ? 0.0f : (x > 0.0f ? x / penalty : x * penalty) - x;
  }
  take_along_axis_backward(tape.encoder(), ids, Buffer::from(tape.device(), shape, changes), logits,
                           Accumulate::yes);
}

void check_options(const SampleOptions& o) {
  for (const TokenRow& turn : o.turns)
    require(!turn.empty(), "sample: what stands between two turns is empty, expected one token or more");
  require(o.repeat_penalty > 0.0 && std::isfinite(o.repeat_penalty), "sample: repeat_penalty is ",
          o.repeat_penalty, ", expected a number above 0");
  require(o.repeat_last >= 0, "sample: repeat_last is ", o.repeat_last, ", expected 0 or more");
}

}  // namespace

std::vector<TokenRow> sample(const CausalLm& model, Tape& tape, const std::vector<TokenRow>& prompts,
                             std::int64_t count, const SampleOptions& options,
                             const std::function<void(std::size_t row, std::uint32_t id)>& on_token,
                             const RunHooks& hooks, GenerationState* kept) {
  require(!prompts.empty() && !prompts[0].empty(), "sample: a prompt is empty, expected one token or more");
  for (const TokenRow& row : prompts) {
    require(row.size() == prompts[0].size(), "sample: prompts have ", prompts[0].size(), " and ", row.size(),
            " tokens, expected one length");
  }
  check_options(options);
  const NoGrad guard(tape);
  Turns turns(options, prompts.size());
  const auto batch = static_cast<std::int64_t>(prompts.size());
  const Buffer ids = tape.alloc(DType::u32, {batch});
  const Buffer chosen = tape.alloc(DType::f32, {batch, 1});  // their logits
  GenerationState own;
  GenerationState& state = kept != nullptr ? *kept : own;
  require(state.length < std::ssize(prompts[0]), "sample: the state holds ", state.length,
          " tokens, expected fewer than the ", prompts[0].size(), " of each prompt");
  const bool penalizes = options.repeat_penalty != 1.0 && options.repeat_last > 0;
  std::optional<GenerationStep> step;
  const std::int64_t most = std::ssize(prompts[0]) + count;
  std::vector<TokenRow> rows = prompts, seen = prompts;
  std::vector<bool> stopped(rows.size(), false);
  for (std::int64_t i = 0; i < count; ++i) {
    hooks.throw_if_stopped("sampling");
    const Buffer logits = next_logits(model, tape, seen, most, state, step);
    if (penalizes) penalize(tape, logits, seen, options);
    const std::uint64_t position = prompts[0].size() + static_cast<std::uint64_t>(i);
    sample_forward(tape.encoder(), logits,
                   {options.temperature, options.top_p, options.seed, position, options.top_k, options.min_p},
                   ids);
    take_along_axis_forward(tape.encoder(), logits, ids.reshape({batch, 1}), chosen);
    tape.encoder().commit_and_wait();
    const std::vector<std::uint32_t> drawn = ids.to_vector<std::uint32_t>();
    const std::vector<float> values = chosen.to_vector<float>();
    for (std::size_t b = 0; b < rows.size(); ++b) {
      const std::uint32_t id = options.turns.empty() ? drawn[b] : turns.next(b, drawn[b]);
      seen[b].push_back(id);
      if (stopped[b]) continue;
      // A row with a NaN gives its place, one with infinity that one's.
      if (!std::isfinite(values[b])) {
        fail(ErrorCode::format, "sample: found ", std::isnan(values[b]) ? "NaN" : "an infinity",
             " among the model's logits, expected numbers");
      }
      rows[b].push_back(id);
      if (on_token) on_token(b, id);
      stopped[b] = options.turns.empty() && contains(options.stop, id);
    }
    if (std::all_of(stopped.begin(), stopped.end(), [](bool s) { return s; })) break;
  }
  return rows;
}

}  // namespace mixtape
