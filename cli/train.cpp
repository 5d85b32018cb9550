// mixtape train: a small model from a config and text.
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/model_options.h"
#include "cli/progress.h"
#include "cli/training_hooks.h"
#include "mixtape/calib/evaluate.h"
#include "mixtape/calib/float_model.h"
#include "mixtape/calib/initialize.h"
#include "mixtape/calib/loss_signal.h"
#include "mixtape/calib/trainer.h"
#include "mixtape/io/atomic_file.h"
#include "mixtape/io/json_file.h"

namespace mixtape::cli {
namespace {

struct PretrainOptions {
  std::string config_file, tokenizer, out, json_file;
  std::string device = "auto";
  TextOptions text;
  TrainOptions train;

  PretrainOptions() {
    text.length = 256;
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

int run_train(const PretrainOptions& o) {
  AtomicDirectory output(o.out);
  const nlohmann::json config_json = read_json(o.config_file);
  const ModelConfig config = ModelConfig::parse(config_json, o.config_file);
  const Tokenizer tokenizer = Tokenizer::load(o.tokenizer);
  const Device device = Device::open(o.device);
  Tape tape(device);
  const OpenedModel opened{nullptr, config, tokenizer};
  const CalibrationData data = split_rows(o.text.rows(opened, nullptr, nullptr), o.text.train_rows,
                                          o.text.validation_rows, o.text.report_rows, o.text.seed);
  fmt::print("training     {}\nvalidation   {}\nreport       {}\n", count_text(data.train),
             count_text(data.validation), count_text(data.report));
  const Parameters parameters = initial_parameters(config, o.text.seed, device);
  watch_interrupts();
  NextToken signal;
  Progress progress("training", "steps");
  const TrainReport report = train(config, parameters, DType::f32, signal, tape, data.train, data.validation,
                                   shuffled_batches(data.train.size(), o.train.batch_size, o.text.seed),
                                   o.train, training_hooks(progress));
  if (report.stopped_early) {
    fmt::print(stderr, "mixtape: interrupted after {} steps; nothing was written\n", report.steps_done);
    return Status::stopped;
  }
  TapeWeights weights(tape, parameters, Trainable::nothing);
  const CausalLm model(config, weights, DType::f32);
  const Evaluation result = evaluate(model, nullptr, tape, data.report, o.train.batch_size);
  const double unigram = unigram_perplexity(data.train, data.report, config.vocab_size);
  fmt::print("held-out perplexity {:.3f}; of the tokens' frequencies alone {:.3f}; ratio {:.3f}\n",
             result.perplexity, unigram, result.perplexity / unigram);
  write_float_model(output, config_json, o.tokenizer, config, parameters);
  if (!o.json_file.empty()) {
    const nlohmann::json json = {
        {"ppl", result.perplexity},
        {"ppl_unigram", unigram},
        {"steps", report.steps_done},
        {"seed", o.text.seed},
        {"tokens_per_second", static_cast<double>(report.tokens_seen) / report.seconds}};
    write_file(o.json_file, json.dump(2) + "\n");
  }
  return report.best_step > 0 ? Status::ok : Status::not_improved;
}

}  // namespace

void add_train(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("train", "Trains a small model from a config and text.");
  auto o = std::make_shared<PretrainOptions>();
  command->add_option("--config", o->config_file, "config.json of the model")->required();
  command->add_option("--tokenizer", o->tokenizer, "Directory with tokenizer.json")->required();
  command->add_option("--out", o->out, "Directory to write")->required();
  command->add_option("--device", o->device, "cpu, cuda, cuda:N or auto")->capture_default_str();
  o->text.add(*command);
  command->add_option("--steps", o->train.steps, "Optimizer steps")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--batch", o->train.batch_size, "Rows per step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--lr", o->train.learning_rate, "Largest step size of Adam")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--json", o->json_file, "Write the figures to this file");
  command->callback([o, &status] { status = run_train(*o); });
}

}  // namespace mixtape::cli
