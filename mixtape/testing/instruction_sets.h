// Host kernels as each of the instruction sets that they are compiled for and this processor has.
#pragma once

#include <gtest/gtest.h>

#include "hwy/highway.h"

namespace mixtape::testing {

// While it lives, host kernels run as that set's.
class OneInstructionSet {
 public:
  explicit OneInstructionSet(std::int64_t target) { choose(target); }
  ~OneInstructionSet() { choose(0); }
  OneInstructionSet(const OneInstructionSet&) = delete;
  OneInstructionSet& operator=(const OneInstructionSet&) = delete;

 private:
  static void choose(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

template <class Work>
void for_every_instruction_set(const Work& work) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const OneInstructionSet chosen(target);
    work();
  }
}

}  // namespace mixtape::testing
