#include "mixtape/core/run_hooks.h"

#include "mixtape/core/error.h"

namespace mixtape {

void RunHooks::throw_if_stopped(const std::string& stage) const {
  if (stops()) fail(ErrorCode::interrupted, stage, ": interrupted");
}

}  // namespace mixtape
