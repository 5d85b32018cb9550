// mixtape calibrate: the quantized copy of a model that is nearest to it.
#include "mixtape/calib/calibrate.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/calibration_report.h"
#include "cli/commands.h"
#include "cli/group_table.h"
#include "cli/model_card.h"
#include "cli/open_device.h"
#include "cli/outputs.h"
#include "cli/progress.h"
#include "cli/quantize_options.h"
#include "cli/terminal.h"
#include "cli/text_options.h"
#include "cli/training_hooks.h"
#include "mixtape/calib/dwq.h"
#include "mixtape/calib/memory.h"
#include "mixtape/calib/recipe.h"
#include "mixtape/calib/reference_recipe.h"
#include "mixtape/quant/plan_file.h"

namespace mixtape::cli {
namespace {

// Of a model on text that it was made for; far more says that the text isn't what it seems.
constexpr double kOddPerplexity = 100.0;

struct ProgramOptions {
  ModelOptions model;
  TextOptions text;
  QuantizeOptions quantize;
  DwqOptions dwq;
  std::string recipe = "good";
  std::string fit = "gptq";
  std::string trained;  // nothing, scales or codes; empty: as the recipe says
  std::string target_dir;
  std::string json_file;
  bool reference_compat = false;
  bool one_pass = false;                            // as many steps as one pass over the rows takes
  bool chooses_batch = true, chooses_steps = true;  // by the recipe
  bool stream_teacher = false;
  bool dry_run = false;
  bool write_on_interrupt = false;

  Effort effort() const {
    return recipe == "fast" ? Effort::fast : recipe == "best" ? Effort::best : Effort::good;
  }
  InitialFit initial_fit() const {
    return fit == "mlx"             ? InitialFit::rounding
           : fit == "least-squares" ? InitialFit::least_squares
                                    : InitialFit::gptq;
  }
  bool trains() const { return trained != "nothing"; }

  // What the recipe decides and the command line does not name.
  void settle(const ModelConfig& config, const Device& device) {
    const bool is_fast = effort() == Effort::fast;
    const Training training = training_of(is_fast ? Effort::good : effort(), config, text.length, device);
    if (trained.empty()) trained = is_fast ? "nothing" : training.trains_codes ? "codes" : "scales";
    if (chooses_batch) dwq.train.batch_size = training.batch_size;
    if (chooses_steps) dwq.train.steps = training.steps;
    dwq.trains_codes = trained == "codes";
  }

  // Fits, then training, as far as asked for.
  std::vector<Method> methods() const {
    std::vector<Method> all = fits(initial_fit(), quantize.rounding());
    if (trains()) all.push_back(mixtape::dwq(dwq));
    return all;
  }
};

class CalibrateRun {
 public:
  explicit CalibrateRun(const ProgramOptions& options)
      : o_(options),
        output_(o_.quantize.out, o_.model.path),
        report_file_(o_.json_file, o_.quantize.out),
        plan_file_(o_.quantize.place_for_plan()),
        device_(open_device(options.model.device)),
        opened_(options.model.open()),
        tape_(device_),
        compute_(options.model.compute_dtype(opened_.config)),
        plan_(options.quantize.plan(opened_)),
        storage_(model_dtype(*opened_.source)) {
    o_.settle(opened_.config, device_);
  }

  int run() {
    show_plan();
    output_.require_space(storage_size(*opened_.source, plan_, storage_).bytes);
    if (o_.dry_run) return Status::ok;
    watch_interrupts();
    prepare();
    StageDisplay display;
    calibrate_student(display.hooks());
    display.close();
    if (calibration_.report.stopped_early && !o_.write_on_interrupt) {
      note(fmt::format("mixtape: interrupted after {} steps; nothing was written", training().steps_done));
      return Status::stopped;
    }
    write(display);
    print_outcome();
    report_file_.write(report());
    return improved() ? Status::ok : Status::not_improved;
  }

 private:
  // What can be wrong with the command line or the files is found before the teacher is loaded.
  void prepare() {
    const bool is_sampled = o_.text.is_sampled();
    sources_ = o_.text.file_sources(opened_.tokenizer, opened_.source->tokenizer_config_json(),
                                    opened_.config.vocab_size);
    if (!is_sampled) {
      split();
    } else {
      o_.text.check_split(sources_);
    }
    for (const Method& m : o_.methods()) {
      if (m.check) m.check(*opened_.source, data_);
    }
  }

  void calibrate_student(const RunHooks& hooks) {
    const Teacher teacher(*opened_.source, compute_, o_.stream_teacher, tape_);
    if (o_.text.is_sampled()) {
      sources_.push_back(o_.text.sampled_source(opened_, teacher.model(), tape_, sources_, hooks));
      split();
    }
    CalibrationOptions options{.methods = o_.methods(), .gate = !o_.reference_compat};
    options.evaluation_batch = o_.dwq.train.batch_size;
    calibration_ = calibrate(teacher, plan_, data_, options, hooks);
  }

  void split() {
    const TextOptions& t = o_.text;
    fmt::print("text         {}\n", t.describe());
    data_ = o_.reference_compat ? reference_split(rows_of(std::move(sources_)), t.train_rows,
                                                  t.validation_rows, t.report_rows, t.seed)
                                : t.split(std::move(sources_));
    TrainOptions& train = o_.dwq.train;
    const auto found = static_cast<std::int64_t>(data_.train.size());
    if (o_.one_pass) train.steps = std::max<std::int64_t>(1, found / train.batch_size);
    print_parts(data_);
    if (o_.trains()) print_epochs(train, found);
  }

  void show_plan() {
    warn_if_beyond_context(opened_.config, o_.text.length);
    print_plan(opened_, plan_, o_.dry_run);
    plan_file_.write(plan_json(plan_));
    if (o_.dry_run) {
      const double bytes =
          predicted_peak_bytes(opened_.config, plan_, compute_, o_.dwq.train.batch_size * o_.text.length,
                               o_.dwq.train.checkpoint_blocks, device_);
      fmt::print("peak memory  about {}\n", format_bytes(bytes));
    }
  }

  // After a stop the best state is still written whole; a second signal ends the program.
  void write(StageDisplay& display) {
    RunHooks hooks = display.hooks();
    if (o_.write_on_interrupt) hooks.should_stop = nullptr;
    output_.write([&](AtomicDirectory& directory) {
      write_card(directory.path(), o_.quantize.out, record());
      write_student(directory, *opened_.source, calibration_.student, plan_, storage_, hooks);
      display.close();
    });
  }

  const TrainReport& training() const { return calibration_.report.training; }

  // On the report rows, at temperature 1; without them on the validation rows.
  bool improved() const {
    const CalibrationReport& r = calibration_.report;
    if (is_initial_fit()) return false;
    return !r.result || r.result->kl->mean < r.initial.kl->mean;
  }
  // Whether nothing that came after plain rounding was kept.
  bool is_initial_fit() const {
    const std::vector<StageReport>& stages = calibration_.report.stages;
    return std::none_of(stages.begin() + 1, stages.end(), [](const StageReport& s) { return s.kept; });
  }

  void print_outcome() {
    const CalibrationReport& r = calibration_.report;
    print_experts(training());
    print_stages(r);
    print_table(r, bits_per_weight(), o_.dwq.train.keep_best);
    print_groups(data_.report_groups, r.initial, r.result ? &*r.result : nullptr);
    if (r.stopped_early) {
      fmt::print("interrupted after {} steps; wrote the best state so far, of step {}, to {}\n",
                 training().steps_done, training().best_step, o_.quantize.out);
    }
    if (training().diverged) {
      fmt::print("step {} had a loss that is not finite: training ended there; a smaller --lr may help\n",
                 training().steps_done);
    }
    if (training().empty_batches > 0)
      fmt::print("{} batches had no position with a target\n", training().empty_batches);
    if (is_initial_fit()) {
      fmt::print("no state was better than plain rounding; plain rounding was written\n");
    } else if (!improved()) {
      fmt::print(
          "the result is not better than plain rounding on the report rows: a smaller --lr may help\n");
    }
    if (r.initial.teacher_perplexity > kOddPerplexity) {
      warn(fmt::format("the model's own perplexity on this text is {:.0f}: is it text that the model knows?",
                       r.initial.teacher_perplexity));
    }
    fmt::print(
        "try          mixtape generate -m {0} -p 'Once upon a time'\n"
        "             mlx_lm.generate --model {0} --prompt 'Once upon a time'\n",
        o_.quantize.out);
  }

  double bits_per_weight() const { return storage_size(*opened_.source, plan_, storage_).bits_per_weight(); }

  // The settings, and the figures that are the same on every run.
  nlohmann::json record() const {
    nlohmann::json json = model_record("calibrate", o_.model, o_.quantize, bits_per_weight());
    const TrainOptions& train = o_.dwq.train;
    json.update({{"recipe", o_.recipe},
                 {"fit", o_.fit},
                 {"train", o_.trained},
                 {"text", o_.text.describe()},
                 {"device", device_.name()},
                 {"dtype", name(compute_)},
                 {"length", o_.text.length},
                 {"seed", o_.text.seed},
                 {"batch", train.batch_size},
                 {"temperature", o_.dwq.loss.temperature},
                 {"top_k", o_.dwq.loss.top_k},
                 {"clip", train.clip_norm},
                 {"validate_every", train.validate_every},
                 {"reference_compat", o_.reference_compat},
                 {"train_tokens", count_positions(data_.train)},
                 {"validation_tokens", count_positions(data_.validation)},
                 {"report_tokens", count_positions(data_.report)}});
    const CalibrationReport& r = calibration_.report;
    json.update(figures(r));
    json["report_groups"] = group_figures(data_.report_groups, r.initial, r.result ? &*r.result : nullptr);
    return json;
  }

  nlohmann::json report() const {
    nlohmann::json json = record();
    json.update(course(calibration_.report));
    return json;
  }

  ProgramOptions o_;
  ModelOutput output_;
  ReportFile report_file_;
  ReportFile plan_file_;
  Device device_;
  OpenedModel opened_;
  Tape tape_;
  DType compute_;
  QuantizationPlan plan_;
  DType storage_;
  std::vector<RowSource> sources_;  // until they are split
  CalibrationData data_;
  Calibration calibration_;
};

void add_recipe_options(CLI::App& command, ProgramOptions& o) {
  OptionGroup group(command, "Recipe");
  group.choice(
      "--recipe", o.recipe, {"fast", "good", "best"},
      "fast: fits alone, seconds to minutes; good: and trains scales, about 8 minutes on two cores; best: "
      "four times as long, learned codes too");
  group.choice(
      "--fit", o.fit, {"mlx", "least-squares", "gptq"},
      "The fit before training: plain rounding alone; then least squares weighted by the inputs; then GPTQ");
  group.choice(
      "--train", o.trained, {"nothing", "scales", "codes"},
      "What learns after the fit: scales and biases, or codes with them; if not given, codes where the model "
      "is small enough");
}

void add_training_options(CLI::App& command, ProgramOptions& o) {
  TrainOptions& train = o.dwq.train;
  OptionGroup group(command, "Training");
  group.whole("--steps", train.steps, {.least = 1}, "Optimizer steps; if not given, the recipe's");
  group.whole("--batch,--batch-size", train.batch_size, {.least = 1},
              "Rows per step; if not given, 4 on a CPU and 16 on a GPU");
  group.number("--lr,--learning-rate", train.learning_rate, kRates,
               "Step size, in units of each tensor's mean |scale|; if not given it follows the start's KL");
  group.number("--temperature,--temp", o.dwq.loss.temperature, {.least = 0.001, .most = 1000},
               "Temperature of the distillation loss");
  group.whole("--top-k", o.dwq.loss.top_k, {.least = 0},
              "Compare only the teacher's K largest logits and the rest as one; 0: all");
  group.number("--clip", train.clip_norm, {.least = 0}, "Largest norm of the gradient, 0: any");
  group.whole("--validate-every", train.validate_every, {.least = 0},
              "Steps between validations, 0: ten in all");
  group.flag("--reference-compat", o.reference_compat, "The exact recipe of mlx-lm's own dwq");
  group.flag("--write-on-interrupt", o.write_on_interrupt, kInterruptHelp);
}

void add_memory_options(CLI::App& command, ProgramOptions& o) {
  OptionGroup memory(command, "Memory");
  memory.flag("--checkpoint,--grad-checkpoint", o.dwq.train.checkpoint_blocks,
              "Recompute activations: less memory, more time");
  memory.flag("--stream-teacher", o.stream_teacher,
              "Read the teacher's blocks from its files in each pass: less memory, more time");
  memory.path("--target-dir", o.target_dir, "DIR",
              "Keep the teacher's --top-k targets here, or use those that are there");
  memory.flag(
      "--dry-run", o.dry_run,
      "Try every place, print modules, sizes, bits per weight and predicted peak memory; run nothing");
  OptionGroup(command, "Report").path("--json", o.json_file, "FILE", kJsonHelp);
}

// A place for the teacher's targets that can't be made is found before anything is loaded.
void check_targets(const ProgramOptions& o) {
  if (o.target_dir.empty()) return;
  require(o.dwq.loss.top_k > 0, "--target-dir stores the largest logits: --top-k is ", o.dwq.loss.top_k,
          ", expected 1 or more");
  refuse_inside("--target-dir", o.target_dir, "--out", o.quantize.out);
  if (!std::filesystem::exists(o.target_dir)) const AtomicDirectory rehearsal(o.target_dir);
}

// The recipe's settings, but for what the command line names.
void use_reference_recipe(const CLI::App& command, ProgramOptions& o) {
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

}  // namespace

void add_calibrate(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      "calibrate", "Makes the quantized copy of a model that is nearest to it; also called dwq.");
  command->alias("dwq");
  auto o = std::make_shared<ProgramOptions>();
  o->model.add(*command);
  o->quantize.add(*command);
  o->text.add(*command);
  o->text.add_sampling(*command);
  add_recipe_options(*command, *o);
  add_training_options(*command, *o);
  add_memory_options(*command, *o);
  command->footer(
      "Examples:\n"
      "  mixtape calibrate -m Qwen3-0.6B -o Qwen3-0.6B-3bit --bits 3 --text my_text.txt\n"
      "  mixtape calibrate -m Qwen3-0.6B -o out --recipe best --chats chats.jsonl\n"
      "  mixtape calibrate -m model.gguf -o model-3bit --bits 3 --data self --dry-run");
  command->callback([o, command, &status] {
    check_targets(*o);
    o->dwq.loss.rest_bucket = o->dwq.loss.top_k > 0 && !o->reference_compat;
    o->chooses_batch = command->count("--batch") == 0;
    o->chooses_steps = command->count("--steps") == 0;
    o->dwq.rate_from_start = command->count("--lr") == 0;
    if (o->reference_compat) use_reference_recipe(*command, *o);
    o->dwq.target_dir = o->target_dir;
    o->dwq.seed = o->text.seed;
    status = CalibrateRun(*o).run();
  });
}

}  // namespace mixtape::cli
