// Host kernels as each of the instruction sets that they are compiled for and this processor has.
#pragma once

#include <gtest/gtest.h>

#include "hwy/highway.h"

namespace mixtape::testing {

using InstructionSets = decltype(hwy::SupportedTargets());

// While it lives, host kernels run as that set's.
class OneInstructionSet {
 public:
  explicit OneInstructionSet(InstructionSets target) { choose(target); }
  ~OneInstructionSet() { choose(0); }
  OneInstructionSet(const OneInstructionSet&) = delete;
  OneInstructionSet& operator=(const OneInstructionSet&) = delete;

 private:
  static void choose(InstructionSets target) {
    hwy::SetSupportedTargetsForTest(target);
#if HWY_MAJOR == 0
    hwy::GetChosenTarget().Update();
#else
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
#endif
  }
};

template <class Work>
void for_every_instruction_set(const Work& work) {
  for (const InstructionSets target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const OneInstructionSet chosen(target);
    work();
  }
}

}  // namespace mixtape::testing
