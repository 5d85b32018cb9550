// A model's final activations for batches that come again.
#pragma once

#include <map>

#include "mixtape/nn/causal_lm.h"

namespace mixtape {

class KeptHidden {
 public:
  // Those of ids u32 [B, S], by position: [B*S, D]; computed, without gradients, when a batch of that first row and
  // shape comes for the first time. The rows of one number must be the same each time.
  const Buffer& of(const CausalLm& model, const Buffer& ids, std::size_t first_row, Tape& tape);

 private:
  std::map<std::size_t, Buffer> by_first_row_;
};

}  // namespace mixtape
