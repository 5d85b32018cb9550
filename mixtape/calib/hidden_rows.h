// Hidden states of rows between two layers of a model. Padding is made in batches and held nowhere.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "mixtape/calib/data.h"
#include "mixtape/core/run_hooks.h"
#include "mixtape/nn/causal_lm.h"

namespace mixtape {

class HiddenRows {
 public:
  // What the model makes of the rows' tokens, each of which is two or more; the last one of a row predicts nothing and
  // is left out. The first of each row's states come to stand where the row stood in `rows`.
  HiddenRows(const CausalLm& model, Tape& tape, std::span<const TokenRow> rows);

  // Puts through a layer, in place, `batch_size` rows at a time. Returns whether it did: false, and the rows are of no
  // more use, where the caller stops it between batches.
  bool pass(const std::function<Var(const Var& x)>& layer, std::int64_t batch_size, const RunHooks& hooks);

  std::size_t size() const { return rows_.size(); }
  // [B, S, D] of some rows, zeros behind the shorter ones.
  Buffer batch(std::span<const std::size_t> rows) const;
  // Of the batch's positions, f32 [B*S]: 1, in the padding 0.
  std::vector<float> weights(std::span<const std::size_t> rows) const;

 private:
  std::int64_t longest(std::span<const std::size_t> rows) const;

  Tape& tape_;
  std::vector<Buffer> rows_;  // [S, D] each
};

}  // namespace mixtape
