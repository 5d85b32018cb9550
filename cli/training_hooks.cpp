#include "cli/training_hooks.h"

#include <fmt/core.h>

#include "cli/signals.h"
#include "cli/terminal.h"

namespace mixtape::cli {

TrainHooks training_hooks(Progress& progress) {
  TrainHooks hooks;
  hooks.should_stop = interrupted;
  hooks.progress = [&progress](const TrainProgress& p) {
    if (p.validation) {
      note(fmt::format("step {:>5}  validation loss {:.5f}", p.validation->step, p.validation->loss));
    } else {
      progress.update(p.step, p.steps,
                      fmt::format("loss {:.4f}, {:.0f} tokens/s", p.loss, p.tokens_per_second));
    }
  };
  return hooks;
}

}  // namespace mixtape::cli
