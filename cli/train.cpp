// mixtape train: a small model from a config and text.
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/checkpoint.h"
#include "cli/commands.h"
#include "cli/disk_space.h"
#include "cli/group_table.h"
#include "cli/inputs.h"
#include "cli/json_report.h"
#include "cli/model_card.h"
#include "cli/open_device.h"
#include "cli/outputs.h"
#include "cli/progress.h"
#include "cli/shared_run.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "cli/text_options.h"
#include "cli/text_table.h"
#include "cli/training_hooks.h"
#include "mixtape/calib/evaluate.h"
#include "mixtape/calib/fingerprint.h"
#include "mixtape/calib/float_model.h"
#include "mixtape/calib/initialize.h"
#include "mixtape/calib/kept_states.h"
#include "mixtape/calib/loss_signal.h"
#include "mixtape/calib/trainer.h"
#include "mixtape/calib/work.h"
#include "mixtape/core/counted.h"
#include "mixtape/core/resident_memory.h"
#include "mixtape/io/json_file.h"
#include "mixtape/io/tensor_list.h"
#include "mixtape/io/tokenizer_files.h"

namespace mixtape::cli {
namespace {

struct PretrainOptions {
  std::string config_file, tokenizer, out, json_file;
  std::string device = "auto", dtype = "f32";
  bool write_on_interrupt = false;
  CheckpointOptions checkpoint;
  TextOptions text;
  TrainOptions train;

  DType compute_dtype() const { return dtype == "bf16" ? DType::bf16 : DType::f32; }

  PretrainOptions() {
    text.length = 257;
    text.validation_rows = 32;
    text.report_rows = 64;
    train.steps = 1000;
    train.batch_size = 16;
    train.learning_rate = 2e-3;
    train.relative_rate = false;
    train.final_rate_share = 0.05;
    train.weight_decay = 0.1;
    train.clip_norm = 1.0;
    train.trainable = Trainable::everything;
  }
};

// exp of the entropy of the tokens' frequencies in `counted`, as a code for `rows`: what knowing only how
// common each token is would reach. Add-one smoothing.
double unigram_perplexity(std::span<const TokenRow> counted, std::span<const TokenRow> rows,
                          std::int64_t vocab_size) {
  std::vector<double> counts(static_cast<std::size_t>(vocab_size), 1.0);
  double total = static_cast<double>(vocab_size);
  for (const TokenRow& row : counted) {
    for (std::size_t i = 1; i < row.size(); ++i) ++counts[row[i]], ++total;
  }
  double nll = 0.0;
  for (const TokenRow& row : rows) {
    for (std::size_t i = 1; i < row.size(); ++i) nll -= std::log(counts[row[i]] / total);
  }
  return std::exp(nll / static_cast<double>(count_positions(rows)));
}

// On all devices, which begin with the same values and take the same steps. Of this process's first device the tape, the
// values and the hooks, but for the states, which all find.
TrainReport train_together(const PretrainOptions& o, const ModelConfig& config, const CalibrationData& data,
                           DeviceGroup& devices, Tape& first, Parameters& values, const RunHooks& hooks) {
  TrainReport report;
  FoundStates states(hooks.states);
  devices.run([&](Communicator& communicator) {
    const auto train_on = [&](Tape& tape, Parameters& parameters, const RunHooks& own) {
      NextToken signal;
      const TrainRows rows = {data.train, data.validation,
                              shuffled_batches(data.train.size(), o.train.batch_size, o.text.seed)};
      return train(config, parameters, o.compute_dtype(), signal, tape, rows, o.train,
                   {.run = own, .communicator = &communicator});
    };
    const auto index = static_cast<std::size_t>(communicator.rank() - devices.first_rank());
    if (index == 0) {
      report = train_on(first, values, hooks);
      return;
    }
    Tape tape(devices.devices()[index]);
    Parameters copy = initial_parameters(config, o.text.seed, tape.device());
    train_on(tape, copy, {.progress = {}, .should_stop = {}, .states = &states});
  });
  return report;
}

// Another process than the first of a run that several share: its part of the steps.
int take_part_in_train(const PretrainOptions& o, const Launch& launch) {
  const std::unique_ptr<DeviceGroup> devices = open_devices(o.device, launch);
  Processes& processes = *devices->processes();
  return run_as_member(processes, [&] {
    const nlohmann::json json = read_json(o.config_file);
    const ModelConfig config = ModelConfig::parse(json, o.config_file);
    SeenStates states(processes, o.checkpoint, o.out, {{"config", text_fingerprint(json.dump())}});
    const CalibrationData data = receive_data(processes);
    watch_interrupts();
    Tape tape(devices->devices()[0]);
    Parameters values = initial_parameters(config, o.text.seed, tape.device());
    train_together(o, config, data, *devices, tape, values,
                   {.progress = {}, .should_stop = interrupted, .states = &states});
  });
}

class TrainRun {
 public:
  TrainRun(const PretrainOptions& options, const std::optional<Launch>& launch)
      : o_(options),
        output_(o_.out, o_.tokenizer),
        report_file_(o_.json_file, inputs(o_), o_.out),
        devices_(open_devices(o_.device, launch)),
        config_json_(read_json(o_.config_file)),
        config_(ModelConfig::parse(config_json_, o_.config_file)),
        tape_(devices_->devices()[0]) {
    require_row_for_each(*devices_, o_.train.batch_size);
  }

  int run() {
    return run_as_first(devices_->processes(), checkpoint_, [this] { return work(); });
  }

 private:
  int work() {
    check(o_.train);
    prepare();
    output_.require_space(
        file_bytes(), bytes_beside(copied_bytes(config_json_, o_.tokenizer), tensor_list(config_).size()));
    tell_run(devices_->processes(), *checkpoint_);
    send_data(devices_->processes(), data_);
    watch_interrupts();
    checkpoint_->begin();
    StageDisplay display;
    Parameters parameters = initial_parameters(config_, o_.text.seed, tape_.device(), display.hooks());
    predict(parameters, display);
    const TrainReport report =
        train_together(o_, config_, data_, *devices_, tape_, parameters, display.hooks(&*checkpoint_));
    display.close();
    if (report.stopped_early && (!o_.write_on_interrupt || report.best_step == 0))
      fail(ErrorCode::interrupted, "interrupted after ", counted(report.steps_done, "step"));
    write(parameters, report, display);
    checkpoint_->remove();
    const std::optional<Evaluation> result = evaluate_unless_stopped(parameters, display);
    if (!result) {
      output_.tell();
      note(fmt::format("mixtape: interrupted after {}, not evaluated", counted(report.steps_done, "step")));
      return Status::ok;
    }
    return tell(report, *result);
  }

  static std::vector<std::string> inputs(const PretrainOptions& o) {
    std::vector<std::string> all = o.text.files();
    all.insert(all.end(), {o.config_file, o.tokenizer});
    return all;
  }

  void prepare() {
    require(!o_.text.is_sampled(), "train: there is no model to sample from");
    const Tokenizer tokenizer = Tokenizer::load(o_.tokenizer);
    data_ = o_.text.split(
        o_.text.file_sources(tokenizer, read_tokenizer_config(o_.tokenizer), config_.vocab_size));
    o_.text.print_parts(data_);
    warn_if_beyond_context(config_, o_.text.length);
    print_epochs(o_.train, static_cast<std::int64_t>(data_.train.size()));
    checkpoint_.emplace(
        o_.checkpoint, o_.out,
        Checkpoint::Inputs{{"config", text_fingerprint(config_json_.dump())},
                           {"tokenizer", text_fingerprint(read_text(o_.tokenizer + "/tokenizer.json"))},
                           {"text", data_fingerprint(data_)},
                           {"device", devices_->name()}});
  }

  // Prints the time of all stages, as long as the machine is as it is while a batch is timed.
  void predict(const Parameters& parameters, StageDisplay& display) {
    display.close();
    TapeWeights weights(tape_, parameters, Trainable::nothing);
    const CausalLm model(config_, weights, o_.compute_dtype());
    const std::int64_t rows = std::min(o_.train.batch_size, std::ssize(data_.train));
    const Pace pace =
        measure_pace(model, tape_, std::span(data_.train).first(static_cast<std::size_t>(rows)));
    const std::vector<StageTime> stages =
        expected_training({.validation_tokens = count_positions(data_.validation),
                           .report_tokens = count_positions(data_.report),
                           .steps = o_.train.steps,
                           .batch_tokens = rows * o_.text.positions(),
                           .validations = 11},
                          pace);
    print_fact("time", "about {}", format_seconds(Forecast(stages).seconds()));
    display.expect(stages, 6.0 * weights_per_token(config_), pace.product);
  }

  std::uint64_t weights() const {
    std::uint64_t elements = 0;
    for (const ModelTensor& t : tensor_list(config_)) elements += static_cast<std::uint64_t>(t.shape.numel());
    return elements;
  }
  std::uint64_t file_bytes() const { return weights() * size_of(config_.dtype.value_or(DType::f32)); }

  // The settings, and the figures that are the same on every run.
  nlohmann::json record(const TrainReport& report) const {
    nlohmann::json json = report_head("train");
    json.update({{"model", model_json(o_.config_file, config_)},
                 {"tokenizer", o_.tokenizer},
                 {"out", size_json(static_cast<double>(file_bytes()), static_cast<std::int64_t>(weights()))},
                 {"text", o_.text.record(data_)},
                 {"seed", o_.text.seed},
                 {"device", devices_->name()},
                 {"dtype", o_.dtype},
                 {"settings", {{"batch", o_.train.batch_size}}},
                 {"training", to_json(report, false)},
                 {"interrupted", report.stopped_early}});
    return json;
  }

  void write(const Parameters& parameters, const TrainReport& report, StageDisplay& display) {
    RunHooks hooks = display.hooks();
    if (o_.write_on_interrupt) hooks.should_stop = nullptr;
    output_.write([&](AtomicDirectory& directory) {
      write_card(directory.path(), o_.out, record(report));
      write_float_model(directory, config_json_, o_.tokenizer, config_, parameters, hooks);
      display.close();
    });
  }

  // The model is written already: a stop costs no more than its figures.
  std::optional<Evaluation> evaluate_unless_stopped(const Parameters& parameters, StageDisplay& display) {
    TapeWeights weights(tape_, parameters, Trainable::nothing);
    const CausalLm model(config_, weights, o_.compute_dtype());
    std::optional<Evaluation> result;
    try {
      if (!interrupted())
        result = evaluate(model, nullptr, tape_, data_.report, o_.train.batch_size, display.hooks(),
                          "evaluating result");
    } catch (const Error& error) {
      if (error.code() != ErrorCode::interrupted) throw;
    }
    display.close();
    return result;
  }

  Status tell(const TrainReport& report, const Evaluation& result) {
    const double unigram = unigram_perplexity(data_.train, data_.report, config_.vocab_size);
    nlohmann::json json = record(report);
    json["out"]["path"] = o_.out;
    json.update({{"training", to_json(report, true)},
                 {"result", to_json(result)},
                 {"unigram_perplexity", unigram},
                 {"peak_bytes", peak_resident_bytes()}});
    const bool improved = report.best_step > 0 && result.perplexity < unigram;
    report_then_tell({[&] { report_file_.write(json); }},
                     [&] { print_outcome(report, result, unigram, improved); });
    return improved ? Status::ok : Status::not_improved;
  }

  void print_outcome(const TrainReport& report, const Evaluation& result, double unigram,
                     bool improved) const {
    output_.tell();
    print_words(fmt::format(
        "held-out perplexity {:.3f} +- {:.3f}; of the tokens' frequencies alone {:.3f}; ratio {:.3f}",
        result.perplexity, result.perplexity_error, unigram, result.perplexity / unigram));
    print_group_perplexities(data_.report_groups, result);
    print_course(report);
    if (report.best_step == 0) {
      print_words("no state was better than the start; the initial weights were written");
    } else if (!improved) {
      print_words(
          "the model predicts no better than the tokens' frequencies alone: more --steps, more text or a "
          "smaller --lr may help");
    }
  }

  PretrainOptions o_;
  ModelOutput output_;
  ReportFile report_file_;
  std::unique_ptr<DeviceGroup> devices_;
  nlohmann::json config_json_;
  ModelConfig config_;
  Tape tape_;
  CalibrationData data_;
  std::optional<Checkpoint> checkpoint_;
};

}  // namespace

void add_train(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("train", "Trains a small model from a config and text.");
  auto o = std::make_shared<PretrainOptions>();
  OptionGroup model(*command, "Model");
  model.path("--model-config", o->config_file, "FILE", "config.json of the model")->required();
  model.path("--tokenizer", o->tokenizer, "DIR", "Directory with tokenizer.json")->required();
  model.path("--device", o->device, "NAME", kDevicesHelp);
  model.choice("--dtype", o->dtype, {"f32", "bf16"}, "Activations; weights are trained in f32");
  OptionGroup(*command, "Output")
      .path("-o,--out", o->out, "DIR", "Directory to write; it must not exist")
      ->required();
  o->text.add(*command);
  OptionGroup group(*command, "Training");
  group.whole("--steps", o->train.steps, {.least = 1}, "Optimizer steps");
  group.whole("--batch,--batch-size", o->train.batch_size, {.least = 1}, "Rows per step");
  group.number("--lr,--learning-rate", o->train.learning_rate, kRates, "Largest step size of Adam");
  group.flag("--write-on-interrupt", o->write_on_interrupt, kInterruptHelp);
  o->checkpoint.add(*command);
  OptionGroup(*command, "Report").path("--json", o->json_file, "FILE", kJsonHelp);
  command->footer(
      "Example:\n"
      "  mixtape train --model-config config.json --tokenizer DIR --text corpus.txt \\\n"
      "    -o small");
  command->callback([o, command, &status] {
    o->train.validate_at_stop = o->write_on_interrupt;
    o->text.refuse_idle(*command);
    o->checkpoint.finish(*command);
    const std::optional<Launch> launch = launch_of_run();
    if (launch) o->checkpoint.processes = launch->size;
    require_files({o->config_file});
    if (!is_member(launch)) {
      require_files(o->text.files());
      require_files({o->tokenizer + "/tokenizer.json"});
    }
    status = is_member(launch) ? take_part_in_train(*o, *launch) : TrainRun(*o, launch).run();
  });
}

}  // namespace mixtape::cli
