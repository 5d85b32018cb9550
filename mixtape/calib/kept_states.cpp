#include "mixtape/calib/kept_states.h"

#include "mixtape/core/error.h"

namespace mixtape {

KeptStage::KeptStage(const RunHooks& hooks, const std::string& name, KeptStates::Save save)
    : hooks_(hooks), name_(hooks.scope + name), save_(std::move(save)) {}

std::optional<SafetensorsFile> KeptStage::find() const {
  return hooks_.states ? hooks_.states->find(name_) : std::nullopt;
}

bool KeptStage::keep() const { return hooks_.states && hooks_.states->keep(name_, save_); }

void KeptStage::run(const std::function<void()>& work) const {
  try {
    work();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::interrupted) keep();
    throw;
  }
  keep();
}

RunHooks within(RunHooks hooks, const std::string& scope) {
  hooks.scope += scope;
  return hooks;
}

void forget(const RunHooks& hooks, const std::string& scope) {
  if (hooks.states) hooks.states->forget(hooks.scope + scope);
}

}  // namespace mixtape
