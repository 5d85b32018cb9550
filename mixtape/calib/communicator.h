// Sums over the members of a run that is shared by several devices or machines. Each member trains the same
// parameters on its own rows; gradients, losses and counts are added up, so that all of them take the same step.
#pragma once

#include <cstdint>
#include <vector>

#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual std::int64_t size() const = 0;  // members
  // Every member calls them in the same order with buffers of the same dtypes and shapes. What each of them then
  // holds is the sum over all members, added in the order of their ranks: the same bits everywhere.
  virtual void all_reduce_sum(CommandEncoder& encoder, const std::vector<Buffer>& buffers) = 0;
  virtual double all_reduce_sum(double value) = 0;
};

// One member: every sum is there already.
class SingleProcess final : public Communicator {
 public:
  std::int64_t size() const override { return 1; }
  void all_reduce_sum(CommandEncoder&, const std::vector<Buffer>&) override {}
  double all_reduce_sum(double value) override { return value; }
};

}  // namespace mixtape
