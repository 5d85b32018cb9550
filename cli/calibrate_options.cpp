#include "cli/calibrate_options.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/inputs.h"
#include "cli/model_card.h"
#include "cli/outputs.h"
#include "mixtape/calib/block_codes.h"
#include "mixtape/calib/cached_teacher.h"
#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/reference_recipe.h"

namespace mixtape::cli {
namespace {

Effort effort_of(const std::string& recipe) {
  return recipe == "fast" ? Effort::fast : recipe == "best" ? Effort::best : Effort::good;
}

InitialFit initial_fit_of(const std::string& fit) {
  return fit == "mlx"             ? InitialFit::rounding
         : fit == "least-squares" ? InitialFit::least_squares
                                  : InitialFit::gptq;
}

Learning learning_of(const std::string& trained) {
  return trained == "codes"    ? Learning::codes
         : trained == "blocks" ? Learning::blocks
         : trained == "scales" ? Learning::scales
                               : Learning::nothing;
}

void add_recipe_options(CLI::App& command, CalibrateOptions& o) {
  OptionGroup group(command, "Recipe");
  group.choice("--recipe", o.recipe, {"fast", "good", "best"},
               "fast: fits alone; good: trains too, by estimate ten minutes for 135 million weights on two "
               "cores; best: "
               "four times the steps");
  group.choice(
      "--fit", o.fit, {"mlx", "least-squares", "gptq"},
      "The fit before training: plain rounding alone; then least squares weighted by the inputs; then GPTQ");
  group.choice(
      "--train", o.trained, {"nothing", "scales", "blocks", "codes"},
      "What learns after the fit: scales and biases; blocks: codes one layer after the other, then scales; "
      "codes: all together, 22 bytes of memory a weight. If not given, codes where the model is small "
      "enough, else blocks");
}

void add_training_options(CLI::App& command, CalibrateOptions& o) {
  TrainOptions& train = o.dwq.train;
  OptionGroup group(command, "Training");
  group
      .whole("--steps", train.steps, {.least = 1},
             "Optimizer steps, of --train blocks in each layer too; if not given, the recipe's")
      ->default_str("");
  group
      .whole("--batch,--batch-size", train.batch_size, {.least = 1},
             "Rows per step; if not given, 4 on a CPU and 16 on a GPU")
      ->default_str("");
  group
      .number("--lr,--learning-rate", train.learning_rate, kRates,
              "Step size, in units of each tensor's mean |scale|; if not given it follows the start's KL")
      ->default_str("");
  group.number("--temperature,--temp", o.dwq.loss.temperature, {.least = 0.001, .most = 1000},
               "Temperature of the distillation loss");
  group.whole("--top-k", o.dwq.loss.top_k, {.least = 0},
              "Compare only the teacher's K largest logits and the rest as one; 0: all");
  group.number("--clip", train.clip_norm, {.least = 0}, "Largest norm of the gradient, 0: any");
  group.whole("--validate-every", train.validate_every, {.least = 0},
              "Steps between validations, 0: ten in all; if not given, four in all where --steps are the "
              "recipe's and few");
  group.flag("--reference-compat", o.reference_compat, "The exact recipe of mlx-lm's own dwq");
  group.flag("--write-on-interrupt", o.write_on_interrupt, kInterruptHelp);
}

void add_memory_options(CLI::App& command, CalibrateOptions& o) {
  OptionGroup memory(command, "Memory");
  memory.flag("--checkpoint,--grad-checkpoint", o.dwq.train.checkpoint_blocks,
              "Recompute activations: less memory, more time");
  memory.flag("--stream-teacher", o.stream_teacher,
              "Read the teacher's blocks from its files in each pass: less memory, more time");
  memory.path("--target-dir", o.target_dir, "DIR",
              "Keep the teacher's --top-k targets here, or use those that are there");
  memory.flag(
      "--dry-run", o.dry_run,
      "Try every place, read and split the text, print modules, sizes, bits per weight, predicted peak "
      "memory and time, for which a batch of rows goes through a few layers; run nothing else");
  OptionGroup report(command, "Report");
  report.path("--json", o.json_file, "FILE", kJsonHelp);
  report.path("--html", o.html_file, "FILE", kHtmlHelp);
  report.path("--save-imatrix", o.saved_imatrix, "FILE",
              "Write the importance of the input channels that the fit gathers, in llama.cpp's form");
}

// A place for the teacher's targets that can't be made is found before anything is loaded; of several processes the
// first one makes it.
void check_targets(const CalibrateOptions& o, bool is_first) {
  if (o.target_dir.empty()) return;
  require(o.dwq.loss.top_k > 0, "--target-dir stores the largest logits: --top-k is ", o.dwq.loss.top_k,
          ", expected 1 or more");
  refuse_inside("--target-dir", o.target_dir, "--out", o.quantize.out);
  if (std::filesystem::exists(o.target_dir)) {
    require_targets(o.target_dir);
  } else if (is_first) {
    const AtomicDirectory rehearsal(o.target_dir);
  }
}

// The recipe's settings, but for what the command line names.
void use_reference_recipe(const CLI::App& command, CalibrateOptions& o) {
  TrainOptions& train = o.dwq.train;
  const TrainOptions asked = train;
  apply_reference_settings(train);
  if (command.count("--lr") > 0) train.learning_rate = asked.learning_rate;
  if (command.count("--batch") > 0) train.batch_size = asked.batch_size;
  if (command.count("--temperature") == 0) o.dwq.loss.temperature = 2.0f;
  if (command.count("--validate-every") > 0) train.validate_every = asked.validate_every;
  o.one_pass = command.count("--steps") == 0;
  require(o.text.shares.empty() && o.text.report_files.empty(),
          "--reference-compat splits rows as that program does: expected no --share or --report-text");
  o.fit = "mlx";
  o.trained = "scales";
  o.chooses_batch = o.chooses_steps = o.dwq.rate_from_start = false;
  o.dwq.reference_order = true;
  o.text.ends_texts = true;
  if (command.count("--validation-rows") == 0) o.text.validation_rows = 32;
  if (command.count("--seed") == 0) o.text.seed = 123;
}

// Options that would say nothing.
void refuse_idle(const CLI::App& command, const CalibrateOptions& o) {
  const auto refuse = [&](const std::vector<std::string>& names, const std::string& why) {
    for (const std::string& name : names) require(command.count(name) == 0, name, " has no effect: ", why);
  };
  if (o.reference_compat || o.fit == "mlx")
    refuse({"--save-imatrix"},
           o.reference_compat ? "--reference-compat gathers none" : "--fit mlx gathers none");
  if (o.reference_compat) refuse({"--recipe", "--fit", "--train"}, "--reference-compat says what is done");
  if (o.dry_run && o.quantize.budget.is_set())
    refuse({"--save-plan"}, "--dry-run measures nothing to choose a plan by");
  if (o.trained == "nothing" || (o.trained.empty() && o.recipe == "fast" && !o.reference_compat)) {
    refuse({"--steps", "--lr", "--temperature", "--top-k", "--clip", "--validate-every", "--target-dir",
            "--checkpoint", "--write-on-interrupt"},
           o.trained.empty() ? "--recipe fast trains nothing" : "--train nothing");
  }
}

}  // namespace

void CalibrateOptions::add(CLI::App& command) {
  model.add_model(command);
  model.add_device(command, kDevicesHelp);
  model.add_dtype(command);
  quantize.add(command);
  quantize.budget.add(command);
  text.add(command);
  text.add_sampling(command);
  add_recipe_options(command, *this);
  add_training_options(command, *this);
  add_memory_options(command, *this);
  checkpoint.add(command);
}

void CalibrateOptions::finish(const CLI::App& command, bool is_first) {
  refuse_idle(command, *this);
  checkpoint.finish(command);
  text.refuse_idle(command);
  if (is_first) require_files(text.files());
  static_cast<void>(text.is_sampled());  // throws where there is no text
  refuse_same_place({{"--save-plan", quantize.saved_plan},
                     {"--json", json_file},
                     {"--html", html_file},
                     {"--save-imatrix", saved_imatrix}});
  quantize.finish(command);
  check_targets(*this, is_first);
  dwq.train.validate_at_stop = write_on_interrupt;
  dwq.loss.rest_bucket = dwq.loss.top_k > 0 && !reference_compat;
  chooses_batch = command.count("--batch") == 0;
  chooses_steps = command.count("--steps") == 0;
  chooses_validations = command.count("--validate-every") == 0;
  dwq.rate_from_start = command.count("--lr") == 0;
  if (reference_compat) use_reference_recipe(command, *this);
  quantize.has_importance = fit != "mlx";
  dwq.target_dir = target_dir;
  dwq.seed = text.seed;
}

void CalibrateOptions::settle(const ModelConfig& config, const Device& device) {
  const Effort effort = effort_of(recipe);
  const bool is_fast = effort == Effort::fast;
  const Training training = training_of(is_fast ? Effort::good : effort, config, text.positions(), device);
  if (trained.empty())
    trained = is_fast ? "nothing" : training.learning == Learning::codes ? "codes" : "blocks";
  if (chooses_batch) dwq.train.batch_size = training.batch_size;
  if (chooses_steps) dwq.train.steps = training.steps;
  if (chooses_steps && chooses_validations) dwq.train.validate_every = training.validate_every;
  measured = sensitivity_of(config, text.positions(), device, quantize.chooses_types());
  statistics_rows = statistics_rows_of(config, text.positions(), device);
}

bool CalibrateOptions::has_written_plan() const {
  std::error_code ignored;
  return checkpoint.resume && std::filesystem::is_regular_file(quantize.saved_plan, ignored);
}

std::vector<std::string> CalibrateOptions::inputs() const {
  std::vector<std::string> all = text.files();
  all.insert(all.end(), {model.path, quantize.plan_file});
  return all;
}

nlohmann::json CalibrateOptions::settings() const {
  nlohmann::json json = quantize_settings(quantize);
  json.update({{"recipe", recipe},
               {"fit", fit},
               {"train", trained},
               {"batch", dwq.train.batch_size},
               {"temperature", dwq.loss.temperature},
               {"top_k", dwq.loss.top_k},
               {"clip", dwq.train.clip_norm},
               {"validate_every", dwq.train.validate_every},
               {"reference_compat", reference_compat}});
  return json;
}

SensitivityOptions CalibrateOptions::sensitivity() const {
  SensitivityOptions o = measured;
  o.fits = fits(initial_fit_of(fit), quantize.rounding());
  o.batch_size = dwq.train.batch_size;
  return o;
}

MemoryUse CalibrateOptions::memory_use(std::int64_t training_rows, std::int64_t devices) const {
  MemoryUse use{.learning = learning_of(trained),
                .checkpoint_blocks = dwq.train.checkpoint_blocks,
                .stream_teacher = stream_teacher};
  use.fits = 0;
  for (const Method& m : methods()) {
    use.fits += static_cast<bool>(m.fit);
    use.statistics = std::max(use.statistics, m.statistics);
  }
  const std::int64_t batch = std::min(dwq.train.batch_size, training_rows);
  use.batch_tokens = (batch + devices - 1) / devices * text.positions();
  use.statistics_tokens = std::min(statistics_rows, training_rows) * text.positions();
  const auto report_texts = std::max<std::int64_t>(1, std::ssize(text.report_files));
  use.measured_tokens = (2 * text.validation_rows + report_texts * text.report_rows) * text.positions();
  use.held_tokens =
      (std::min(BlockCodesOptions{}.rows, training_rows) + text.validation_rows) * text.positions();
  return use;
}

WorkUse CalibrateOptions::work_use(const CalibrationData& data, std::int64_t devices) const {
  const MemoryUse memory = memory_use(std::ssize(data.train), devices);
  const TrainOptions& train = dwq.train;
  const std::int64_t every =
      train.validate_every > 0 ? train.validate_every : std::max<std::int64_t>(1, train.steps / 10);
  WorkUse use{.fit = initial_fit_of(fit), .learning = learning_of(trained)};
  if (text.is_sampled()) use.sampled_tokens = text.self_rows * text.length;
  if (quantize.budget.is_set()) {
    use.measured_tokens = measured.kl_rows * text.positions();
    use.formats = std::max<std::int64_t>(1, std::ssize(measured.references));
  }
  use.statistics_tokens = memory.statistics_tokens;
  use.validation_tokens = count_positions(data.validation);
  use.report_tokens = count_positions(data.report);
  use.steps = train.steps;
  use.batch_tokens = memory.batch_tokens;
  use.validations = 1 + train.steps / every;
  use.held_tokens = memory.held_tokens;
  use.stream_teacher = stream_teacher;
  use.gate = !reference_compat;
  use.checkpoint_blocks = train.checkpoint_blocks;
  return use;
}

std::int64_t CalibrateOptions::part_tokens(const ModelConfig& config, const QuantizationPlan& plan,
                                           const CalibrationData& data, const Device& device) const {
  return html_file.empty() ? 0 : part_tokens_of(config, plan, work_use(data, 1), device);
}

std::vector<Method> CalibrateOptions::methods() const {
  std::vector<Method> all = fits(initial_fit_of(fit), quantize.rounding(), learning_of(trained));
  const std::vector<Method> training = training_methods(learning_of(trained), dwq);
  all.insert(all.end(), training.begin(), training.end());
  return all;
}

}  // namespace mixtape::cli
