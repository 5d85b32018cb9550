#include "mixtape/calib/kept_hidden.h"

#include "mixtape/calib/logit_blocks.h"

namespace mixtape {

const Buffer& KeptHidden::of(const CausalLm& model, const Buffer& ids, std::size_t first_row, Tape& tape) {
  Buffer& kept = by_first_row_[first_row];
  if (kept && kept.shape()[0] == ids.numel()) return kept;
  const NoGrad guard(tape);
  kept = hidden_rows(model, ids);
  return kept;
}

}  // namespace mixtape
