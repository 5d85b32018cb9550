// What gradient steps minimise, as the loop that makes them sees it (train_loop.h).
#pragma once

#include <cstddef>
#include <span>

#include "mixtape/calib/optimizer.h"

namespace mixtape {

// Sums over all members of a run.
struct BatchLoss {
  double loss = 0.0;       // over the positions that count
  double positions = 0.0;  // that count
  double mean() const { return positions > 0.0 ? loss / positions : 0.0; }
};

// A mean over the positions of batches of rows, which are numbered: training rows, then validation rows.
class Objective {
 public:
  virtual ~Objective() = default;
  // Leaves the gradients of the batch's mean loss in the optimizer's leaves.
  virtual BatchLoss train(std::span<const std::size_t> rows, const Optimizer& optimizer) = 0;
  virtual BatchLoss evaluate(std::span<const std::size_t> rows) = 0;
  // Whether the next train() overwrites gradients instead of adding to them.
  virtual bool overwrites_gradients() const { return false; }
};

}  // namespace mixtape
