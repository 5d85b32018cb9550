// mixtape dwq: distils a model into the scales and biases of its quantized copy.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/model_options.h"
#include "cli/progress.h"
#include "cli/quantize_options.h"
#include "cli/training_hooks.h"
#include "mixtape/calib/evaluate.h"
#include "mixtape/calib/loss_signal.h"
#include "mixtape/calib/memory.h"
#include "mixtape/calib/reference_recipe.h"
#include "mixtape/calib/student.h"
#include "mixtape/calib/trainer.h"
#include "mixtape/io/atomic_file.h"

namespace mixtape::cli {
namespace {

struct DwqOptions {
  ModelOptions model;
  TextOptions text;
  QuantizeOptions quantize;
  TrainOptions train;
  KlOptions loss{.temperature = 2.0f, .top_k = 0, .rest_bucket = false};
  std::string target_dir;
  std::string json_file;
  bool reference_compat = false;
  bool stream_teacher = false;
  bool dry_run = false;
  bool write_on_interrupt = false;
};

// What stands in the report: the same student three times.
struct Outcome {
  Evaluation rtn, result;
  TrainReport training;
  CalibrationData data;
  double bits_per_weight = 0.0;
  std::vector<std::string> unseen_experts;
};

class DwqRun {
 public:
  explicit DwqRun(const DwqOptions& options)
      : o_(options),
        opened_(options.model.open()),
        device_(Device::open(options.model.device)),
        tape_(device_),
        compute_(options.model.compute_dtype(opened_.config)),
        plan_(options.quantize.plan(opened_)),
        storage_(model_dtype(*opened_.source)) {}

  int run() {
    AtomicDirectory output(o_.quantize.out);
    show_plan();
    if (o_.dry_run) return Status::ok;
    watch_interrupts();
    const Parameters teacher =
        o_.stream_teacher ? load_float_tensors(*opened_.source, opened_.config, plan_, compute_, device_)
                          : load_parameters(*opened_.source, opened_.config, compute_, device_);
    TapeWeights teacher_weights = o_.stream_teacher ? TapeWeights(tape_, *opened_.source, compute_)
                                                    : TapeWeights(tape_, teacher, Trainable::nothing);
    const CausalLm teacher_model(opened_.config, teacher_weights, compute_);
    outcome_.data = split(o_.text.rows(opened_, &teacher_model, &tape_));
    const Parameters student =
        quantize_parameters(*opened_.source, teacher, plan_, o_.quantize.rounding(), device_);
    outcome_.rtn = evaluate_stored(student, teacher_model, "plain rounding");
    train_student(student, teacher_model);
    if (outcome_.training.stopped_early && !o_.write_on_interrupt) {
      fmt::print(stderr, "mixtape: interrupted after {} steps; nothing was written\n",
                 outcome_.training.steps_done);
      return Status::stopped;
    }
    outcome_.result = evaluate_stored(student, teacher_model, "result");
    write_student(output, *opened_.source, with_stored_scales(student, storage_, device_), plan_, storage_);
    print_table();
    if (!o_.json_file.empty()) write_file(o_.json_file, report().dump(2) + "\n");
    return improved() ? Status::ok : Status::not_improved;
  }

 private:
  CalibrationData split(std::vector<TokenRow> rows) const {
    CalibrationData data = o_.reference_compat
                               ? reference_split(std::move(rows), o_.text.train_rows, o_.text.validation_rows,
                                                 o_.text.report_rows, o_.text.seed)
                               : split_rows(std::move(rows), o_.text.train_rows, o_.text.validation_rows,
                                            o_.text.report_rows, o_.text.seed);
    fmt::print("text         {}\n", o_.text.describe());
    fmt::print("training     {}\n", count_text(data.train));
    fmt::print("validation   {}\n", count_text(data.validation));
    fmt::print("report       {}\n", count_text(data.report));
    return data;
  }

  void show_plan() {
    outcome_.bits_per_weight = storage_size(*opened_.source, plan_, storage_).bits_per_weight();
    print_plan(opened_, plan_, o_.dry_run);
    if (o_.dry_run) {
      const double bytes =
          predicted_peak_bytes(opened_.config, plan_, compute_, o_.train.batch_size * o_.text.length,
                               o_.train.checkpoint_blocks, device_);
      fmt::print("peak memory  about {}\n", format_bytes(bytes));
    }
  }

  Evaluation evaluate_stored(const Parameters& student, const CausalLm& teacher, const std::string& what) {
    const Parameters stored = with_stored_scales(student, storage_, device_);
    TapeWeights weights(tape_, stored, Trainable::nothing);
    const CausalLm model(student_config(opened_.config, plan_), weights, compute_);
    Progress progress("evaluating " + what, "tokens");
    return evaluate(model, &teacher, tape_, outcome_.data.report, o_.train.batch_size,
                    [&](std::int64_t done, std::int64_t total) { progress.update(done, total); });
  }

  void train_student(const Parameters& student, const CausalLm& teacher) {
    const std::unique_ptr<LossSignal> signal = make_signal(teacher);
    Progress progress("calibrating", "steps");
    const BatchOrder order =
        o_.reference_compat ? reference_batches(outcome_.data.train, o_.train.batch_size, o_.text.seed)
                            : shuffled_batches(outcome_.data.train.size(), o_.train.batch_size, o_.text.seed);
    outcome_.training =
        train(student_config(opened_.config, plan_), student, compute_, *signal, tape_, outcome_.data.train,
              outcome_.data.validation, order, o_.train, training_hooks(progress));
  }

  std::unique_ptr<LossSignal> make_signal(const CausalLm& teacher) {
    if (o_.target_dir.empty()) return std::make_unique<LiveTeacher>(teacher, tape_, o_.loss);
    require(o_.loss.top_k > 0, "--target-dir stores the largest logits: --top-k is 0, expected 1 or more");
    std::vector<TokenRow> rows = outcome_.data.train;
    rows.insert(rows.end(), outcome_.data.validation.begin(), outcome_.data.validation.end());
    const std::string fingerprint =
        targets_fingerprint(opened_.source->where(), opened_.config, rows, o_.loss);
    if (!std::filesystem::exists(o_.target_dir)) {
      Progress progress("teacher targets", "rows");
      AtomicDirectory output(o_.target_dir);
      write_targets(output, fingerprint, teacher, tape_, rows, o_.loss,
                    [&](std::int64_t done, std::int64_t total) { progress.update(done, total); });
    }
    return std::make_unique<CachedTeacher>(o_.target_dir, fingerprint, tape_, o_.loss);
  }

  bool improved() const { return outcome_.training.best_step > 0; }

  void print_table() {
    const Evaluation& a = outcome_.rtn;
    const Evaluation& b = outcome_.result;
    fmt::print("\n{:<16}{:>10}{:>12}{:>12}{:>12}{:>12}\n", "", "ppl", "KL mean", "KL median", "KL p99",
               "same top 1");
    fmt::print("{:<16}{:>10.3f}\n", "teacher", a.teacher_perplexity);
    for (const auto& [name, e] : {std::pair("plain rounding", &a), std::pair("calibrated", &b)}) {
      fmt::print("{:<16}{:>10.3f}{:>12.5f}{:>12.5f}{:>12.4f}{:>11.2f}%\n", name, e->perplexity, e->kl->mean,
                 e->kl->median, e->kl->p99, 100.0 * e->top1_agreement);
    }
    fmt::print("KL cut by {:.1f} %; {:.3f} bits per weight; {} steps, best at {}; {:.0f} tokens/s; peak {}\n",
               100.0 * (1.0 - b.kl->mean / a.kl->mean), outcome_.bits_per_weight,
               outcome_.training.steps_done, outcome_.training.best_step, tokens_per_second(),
               format_bytes(static_cast<double>(peak_resident_bytes())));
    print_experts();
    if (outcome_.training.empty_batches > 0) {
      fmt::print("{} batches had no position with a target\n", outcome_.training.empty_batches);
    }
    if (!improved()) fmt::print("no state was better than plain rounding; plain rounding was written\n");
  }

  void print_experts() {
    for (const auto& [layer, seen] : outcome_.training.expert_tokens) {
      fmt::print("layer {:>2} tokens per expert:", layer);
      for (std::size_t e = 0; e < seen.size(); ++e) {
        fmt::print(" {}", seen[e]);
        if (seen[e] == 0) outcome_.unseen_experts.push_back(str("model.layers.", layer, ".mlp.experts.", e));
      }
      fmt::print("\n");
    }
    for (const std::string& name : outcome_.unseen_experts) {
      fmt::print("{} saw no token and keeps its rounded weights\n", name);
    }
  }

  double tokens_per_second() const {
    const TrainReport& t = outcome_.training;
    return t.seconds > 0.0 ? static_cast<double>(t.tokens_seen) / t.seconds : 0.0;
  }

  nlohmann::json report() const {
    const TrainReport& t = outcome_.training;
    nlohmann::json curve = nlohmann::json::array();
    for (const ValidationPoint& p : t.validation) curve.push_back({{"step", p.step}, {"loss", p.loss}});
    nlohmann::json experts = nlohmann::json::object();
    for (const auto& [layer, seen] : t.expert_tokens) experts[std::to_string(layer)] = seen;
    const auto kl = [](const KlStatistics& k) {
      return nlohmann::json{
          {"mean", k.mean}, {"median", k.median}, {"p95", k.p95}, {"p99", k.p99}, {"max", k.max}};
    };
    return {{"kl_rtn", outcome_.rtn.kl->mean},
            {"kl_result", outcome_.result.kl->mean},
            {"kl_rtn_statistics", kl(*outcome_.rtn.kl)},
            {"kl_result_statistics", kl(*outcome_.result.kl)},
            {"ppl_teacher", outcome_.rtn.teacher_perplexity},
            {"ppl_rtn", outcome_.rtn.perplexity},
            {"ppl_result", outcome_.result.perplexity},
            {"top1_rtn", outcome_.rtn.top1_agreement},
            {"top1_result", outcome_.result.top1_agreement},
            {"bits", o_.quantize.bits},
            {"group_size", o_.quantize.group_size},
            {"bits_per_weight", outcome_.bits_per_weight},
            {"tokens_per_second", tokens_per_second()},
            {"seconds", t.seconds},
            {"peak_bytes", peak_resident_bytes()},
            {"steps", t.steps_done},
            {"best_step", t.best_step},
            {"learning_rate", o_.train.learning_rate},
            {"seed", o_.text.seed},
            {"validation", curve},
            {"losses", t.losses},
            {"train_tokens", count_positions(outcome_.data.train)},
            {"validation_tokens", count_positions(outcome_.data.validation)},
            {"report_tokens", count_positions(outcome_.data.report)},
            {"expert_tokens", experts},
            {"unseen_experts", outcome_.unseen_experts}};
  }

  DwqOptions o_;
  OpenedModel opened_;
  Device device_;
  Tape tape_;
  DType compute_;
  QuantizationPlan plan_;
  DType storage_;
  Outcome outcome_;
};

void add_training_options(CLI::App& command, DwqOptions& o) {
  command.add_option("--steps", o.train.steps, "Optimizer steps")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--batch", o.train.batch_size, "Rows per step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--lr", o.train.learning_rate, "Step size, in units of each tensor's mean |scale|")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--temperature", o.loss.temperature, "Temperature of the distillation loss")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      .add_option("--top-k", o.loss.top_k,
                  "Compare only the teacher's K largest logits and the rest as one; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--clip", o.train.clip_norm, "Largest norm of the gradient, 0 for none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      .add_option("--validate-every", o.train.validate_every, "Steps between validations, 0 for ten in all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_flag("--checkpoint", o.train.checkpoint_blocks,
                   "Recompute activations: less memory, more time");
}

// The recipe's settings, but for what the command line names.
void use_reference_recipe(const CLI::App& command, DwqOptions& o) {
  const TrainOptions asked = o.train;
  apply_reference_settings(o.train);
  if (command.count("--lr") > 0) o.train.learning_rate = asked.learning_rate;
  if (command.count("--batch") > 0) o.train.batch_size = asked.batch_size;
  if (command.count("--validate-every") > 0) o.train.validate_every = asked.validate_every;
  if (command.count("--validation-rows") == 0) o.text.validation_rows = 32;
  if (command.count("--seed") == 0) o.text.seed = 123;
}

}  // namespace

void add_dwq(CLI::App& app, int& status) {
  CLI::App* command =
      app.add_subcommand("dwq", "Calibrates a quantized copy: distils the model into its scales and biases.");
  auto o = std::make_shared<DwqOptions>();
  o->model.add(*command);
  o->quantize.add(*command);
  o->text.add(*command);
  add_training_options(*command, *o);
  command->add_option("--target-dir", o->target_dir,
                      "Keep the teacher's targets here, or use those that are there");
  command->add_option("--json", o->json_file, "Write the report to this file");
  command->add_flag("--stream-teacher", o->stream_teacher,
                    "Read the teacher's blocks from its files in each pass: less memory, more time");
  command->add_flag("--reference-compat", o->reference_compat, "The reference program's exact recipe");
  command->add_flag("--dry-run", o->dry_run,
                    "Print modules, sizes, bits per weight and predicted peak memory");
  command->add_flag("--write-on-interrupt", o->write_on_interrupt,
                    "After Ctrl-C write the best state so far");
  command->callback([o, command, &status] {
    o->loss.rest_bucket = o->loss.top_k > 0 && !o->reference_compat;
    if (o->reference_compat) use_reference_recipe(*command, *o);
    status = DwqRun(*o).run();
  });
}

}  // namespace mixtape::cli
