// mixtape eval: perplexity of a model, and its distance from a teacher.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/model_options.h"
#include "cli/model_path.h"
#include "cli/open_device.h"
#include "cli/outputs.h"
#include "cli/training_hooks.h"
#include "mixtape/calib/evaluate.h"

namespace mixtape::cli {
namespace {

struct EvalOptions {
  ModelOptions model;
  std::string teacher;
  std::vector<std::string> text_files;
  std::int64_t length = 512;
  std::int64_t max_tokens = 0;
  std::int64_t batch_size = 4;
  std::string json_file;
};

// Windows of `length` tokens, as perplexity is usually counted: length-1 predictions each, nothing in front
// but BOS where the tokenizer adds one.
std::vector<TokenRow> windows(const EvalOptions& o, const OpenedModel& opened) {
  warn_if_beyond_context(opened.config, o.length);
  TextOptions text;
  text.text_files = o.text_files;
  text.length = o.length - 1;
  text.max_tokens = o.max_tokens;
  return text.file_rows(opened.tokenizer, {}, opened.config.vocab_size);
}

nlohmann::json to_json(const Evaluation& e) {
  nlohmann::json json = {{"positions", e.positions}, {"mean_nll", e.mean_nll}, {"ppl", e.perplexity}};
  json["mean_nll_error"] = e.mean_nll_error;
  json["ppl_error"] = e.perplexity_error;
  if (!e.kl) return json;
  json["ppl_teacher"] = e.teacher_perplexity;
  json["top1"] = e.top1_agreement;
  json["kl"] = {{"mean", e.kl->mean},     {"mean_error", e.kl->mean_error},
                {"median", e.kl->median}, {"p95", e.kl->p95},
                {"p99", e.kl->p99},       {"max", e.kl->max}};
  return json;
}

void print(const Evaluation& e) {
  fmt::print("positions        {}\n", e.positions);
  fmt::print("mean nll         {:.5f} +- {:.5f}\n", e.mean_nll, e.mean_nll_error);
  fmt::print("perplexity       {:.4f} +- {:.4f}\n", e.perplexity, e.perplexity_error);
  if (!e.kl) return;
  fmt::print("teacher          {:.4f}\n", e.teacher_perplexity);
  fmt::print("KL mean          {:.6f} +- {:.6f}\n", e.kl->mean, e.kl->mean_error);
  fmt::print("KL median        {:.6f}\n", e.kl->median);
  fmt::print("KL p95           {:.6f}\n", e.kl->p95);
  fmt::print("KL p99           {:.6f}\n", e.kl->p99);
  fmt::print("KL max           {:.6f}\n", e.kl->max);
  fmt::print("same top 1       {:.2f} %\n", 100.0 * e.top1_agreement);
}

void run_eval(const EvalOptions& o) {
  ReportFile report(o.json_file);
  const Device device = open_device(o.model.device);
  const OpenedModel opened = o.model.open();
  const std::vector<TokenRow> rows = windows(o, opened);
  Tape tape(device);
  const DType dtype = o.model.compute_dtype(opened.config);
  const Parameters parameters = load_parameters(*opened.source, opened.config, dtype, device);
  TapeWeights weights(tape, parameters, Trainable::nothing);
  const CausalLm model(opened.config, weights, dtype);
  watch_interrupts();
  StageDisplay display;
  Evaluation result;
  if (o.teacher.empty()) {
    result = evaluate(model, nullptr, tape, rows, o.batch_size, display.hooks());
  } else {
    const auto source = open_model(find_model(o.teacher));
    const ModelConfig config = source->config();
    const Parameters teacher_parameters = load_parameters(*source, config, dtype, device);
    TapeWeights teacher_weights(tape, teacher_parameters, Trainable::nothing);
    const CausalLm teacher(config, teacher_weights, dtype);
    result = evaluate(model, &teacher, tape, rows, o.batch_size, display.hooks());
  }
  display.close();
  print(result);
  report.write(to_json(result));
}

}  // namespace

void add_eval(CLI::App& app, int&) {
  CLI::App* command =
      app.add_subcommand("eval", "Perplexity of a model; with --teacher also KL and top-1 agreement.");
  auto o = std::make_shared<EvalOptions>();
  o->model.add(*command);
  OptionGroup(*command, "Model").path("--teacher", o->teacher, "MODEL", "Compare with this model");
  OptionGroup data(*command, "Data");
  data.paths("--text", o->text_files, "FILE", "Text; may be repeated")->required();
  data.whole("--length,--max-seq-length", o->length, {.least = 2, .most = 131072}, "Tokens per window");
  data.whole("--max-tokens", o->max_tokens, {.least = 0}, "Use only the first tokens of the text, 0: all");
  data.whole("--batch,--batch-size", o->batch_size, {.least = 1}, "Windows at a time");
  OptionGroup(*command, "Report").path("--json", o->json_file, "FILE", kJsonHelp);
  command->footer(
      "Examples:\n"
      "  mixtape eval -m Qwen3-0.6B --text wiki.txt\n"
      "  mixtape eval -m Qwen3-0.6B-3bit --teacher Qwen3-0.6B --text wiki.txt --json -");
  command->callback([o] { run_eval(*o); });
}

}  // namespace mixtape::cli
