#include "cli/training_hooks.h"

#include <fmt/core.h>

#include <algorithm>

#include "cli/signals.h"
#include "cli/terminal.h"
#include "cli/text_table.h"
#include "mixtape/core/counted.h"

namespace mixtape::cli {

void StageDisplay::expect(const std::vector<StageTime>& stages, double operations, double product_rate) {
  forecast_.emplace(stages);
  fastest_ = product_rate / operations;
}

RunHooks StageDisplay::hooks(KeptStates* states) {
  return {
      .progress = [this](const StageProgress& p) { show(p); }, .should_stop = interrupted, .states = states};
}

void StageDisplay::show(const StageProgress& p) {
  if (p.validation_loss) {
    note(fmt::format("step {:>5}  validation loss {:.5f}", p.done, *p.validation_loss));
    return;
  }
  Progress::State state{.done = p.done, .total = p.total};
  if (p.loss) state.note = fmt::format("loss {:.4f}", *p.loss);
  if (p.tokens_per_second) state.details = fmt::format("{:.0f} tokens/s", *p.tokens_per_second);
  if (p.tokens_per_second && fastest_ > 0.0)
    state.details += fmt::format(", {:.0f} % of a product's rate", 100.0 * *p.tokens_per_second / fastest_);
  if (forecast_) {
    forecast_->update(p, clock_.seconds());
    state.seconds_left = forecast_->seconds_left();
  }
  lines_.try_emplace(p.stage, p.stage, p.unit).first->second.update(state);
  if (p.done >= p.total) lines_.erase(p.stage);
}

void print_course(const TrainReport& report) {
  if (report.diverged) {
    print_words(
        fmt::format("step {} had a loss that is not finite: training ended there; a smaller --lr may help",
                    report.steps_done));
  }
  if (report.empty_batches > 0)
    fmt::print("{} had no position with a target\n", counted(report.empty_batches, "batch", "batches"));
  if (report.validation.empty()) return;
  const ValidationPoint &first = report.validation.front(), &last = report.validation.back();
  if (last.loss > first.loss) {
    print_words(fmt::format(
        "the validation loss rose from {:.4f} at the start to {:.4f} at step {}: a smaller --lr may help",
        first.loss, last.loss, last.step));
  }
}

void print_epochs(const TrainOptions& options, std::int64_t rows) {
  const std::int64_t batch = std::min(options.batch_size, rows);
  const double epochs =
      static_cast<double>(options.steps) * static_cast<double>(batch) / static_cast<double>(rows);
  print_fact("steps", "{} x {} = {:.1f} epochs", options.steps, counted(batch, "row"), epochs);
  if (batch < options.batch_size)
    warn(fmt::format("--batch is {}, found {}", options.batch_size, counted(rows, "training row")));
  if (epochs > 4.0)
    warn(fmt::format("each row is seen {:.0f} times; more text or fewer --steps learn more", epochs));
}

}  // namespace mixtape::cli
