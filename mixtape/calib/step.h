// Forward and, where asked, backward of one batch.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "mixtape/calib/loss_signal.h"
#include "mixtape/calib/objective.h"
#include "mixtape/runtime/communicator.h"

namespace mixtape {

// The head runs on blocks of positions, each of which is differentiated at once: no [positions, vocab] tensor
// exists. Where the device can, a training step is recorded when its shape comes for the second time, and
// replayed from then on: its gradients then stay those of the leaves until the next step.
class Step {
 public:
  using Result = BatchLoss;

  Step(const CausalLm& model, LossSignal& signal, Tape& tape, Communicator& communicator,
       const ForwardOptions& forward)
      : model_(model), signal_(signal), tape_(tape), communicator_(communicator), forward_(forward) {}

  Result evaluate(const Batch& batch, std::span<const std::size_t> rows);
  // Each member's batch is its own share, perhaps one without positions. Leaves the share's part of the gradients of the
  // mean loss over all members' positions in the optimizer's leaves.
  Result train(const Batch& batch, std::span<const std::size_t> rows, const Optimizer& optimizer);

  bool is_recorded() const { return replay_ != nullptr; }

 private:
  Result result(const Batch& batch, double positions);
  void run_recorded(const Batch& batch, const Buffer& shares, std::span<const std::size_t> rows,
                    const Optimizer& optimizer);
  void encode(const Buffer& ids, const Buffer& shares);
  Buffer head(const Buffer& h, const Buffer& shares, std::int64_t begin, std::int64_t end,
              const Buffer& gradient);
  Var logits(const Var& hidden) const;
  Buffer shares(const Batch& batch, double positions) const;

  const CausalLm& model_;
  LossSignal& signal_;
  Tape& tape_;
  Communicator& communicator_;
  const ForwardOptions& forward_;
  std::vector<Buffer> losses_;           // of the last batch, by blocks of positions
  std::vector<Buffer> replayed_losses_;  // where a replay writes them
  Batch held_;                           // where a recorded step finds its batch
  Buffer held_shares_;
  std::shared_ptr<Replay> replay_;
};

}  // namespace mixtape
