// mixtape eval: perplexity of a model, and its distance from a teacher.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/evaluation_table.h"
#include "cli/evaluator.h"
#include "cli/json_report.h"
#include "cli/model_path.h"
#include "cli/open_device.h"
#include "cli/outputs.h"
#include "cli/text_table.h"

namespace mixtape::cli {
namespace {

struct EvalOptions {
  ModelOptions model;
  EvaluatorOptions evaluator;
  std::string versus, save_base, json_file;

  std::vector<std::string> inputs() const {
    std::vector<std::string> all = evaluator.inputs();
    all.insert(all.end(), {model.path, versus});
    return all;
  }
  void finish(const CLI::App& command) {
    require(evaluator.base.empty() || save_base.empty(),
            "--base is the teacher: expected no --save-base beside it");
    require(
        versus.empty() || !evaluator.teacher.empty() || !evaluator.base.empty(),
        "--versus compares two models by their distance from a teacher: expected --teacher or --base too");
    evaluator.finish(command);
    refuse_same_place({{"--save-base", save_base}, {"--json", json_file}});
  }
};

std::unique_ptr<AtomicFile> place_for_base(const EvalOptions& o, std::size_t rows, std::int64_t vocab_size) {
  const std::int64_t length = o.evaluator.length;
  refuse_input("--save-base", o.save_base, o.inputs());
  require(length >= 3, "--length is ", length, ", expected 3 or more with --save-base");
  return place_for("--save-base", o.save_base,
                   base_logits_bytes(static_cast<std::int64_t>(rows), length, vocab_size));
}

void print_both(const EvalOptions& o, const Evaluation& result, const Evaluation& other) {
  print_figures(o.model.path, result);
  print_figures(o.versus, other);
  const Estimate difference = kl_difference(result, other);
  print_words(fmt::format("KL difference    {:+.6f} +- {:.6f}, {} minus {}, paired", difference.value,
                          difference.error, o.versus, o.model.path),
              17);
}

void run_eval(const EvalOptions& o) {
  ReportFile report(o.json_file, o.inputs());
  const Device device = open_device(o.model.device);
  const OpenedModel opened = o.model.open();
  std::unique_ptr<ModelSource> versus;
  if (!o.versus.empty()) versus = open_model(find_model(o.versus));
  std::vector<const ModelSource*> models = {opened.source.get()};
  if (versus) models.push_back(versus.get());
  Evaluator evaluator(o.evaluator, o.model, opened, models, device);
  StageDisplay display;
  if (!o.save_base.empty()) {
    const auto file = place_for_base(o, evaluator.rows().size(), opened.config.vocab_size);
    evaluator.keep_base(*file, o.save_base, *opened.source, display);
  }
  const Evaluation result = evaluator.measure(*opened.source, "evaluating", display);
  nlohmann::json json = report_head("eval");
  json.update(evaluator.record());
  json.update({{"model", model_json(o.model.path, opened.config)}, {"result", to_json(result)}});
  std::optional<Evaluation> other;
  if (versus) {
    other = evaluator.measure(*versus, "evaluating --versus", display);
    json["versus"] = model_json(o.versus, versus->config());
    json["versus"]["result"] = to_json(*other);
    json["kl_difference"] = to_json(kl_difference(result, *other));
  }
  display.close();
  report_then_tell({[&] { report.write(json); }},
                   [&] { other ? print_both(o, result, *other) : print_figures("", result); });
}

}  // namespace

void add_eval(CLI::App& app, int&) {
  CLI::App* command =
      app.add_subcommand("eval", "Perplexity of a model; with --teacher also KL and top-1 agreement.");
  auto o = std::make_shared<EvalOptions>();
  o->model.add(*command);
  o->model.add_dtype(*command);
  o->evaluator.add(*command);
  OptionGroup(*command, "Model")
      .path("--versus", o->versus, "MODEL", "Another student: which of the two is closer to the teacher");
  OptionGroup(*command, "Data")
      .path(
          "--save-base", o->save_base, "FILE",
          "Keep the teacher's (without --teacher the model's) log-probabilities of each window's second half "
          "here; llama-perplexity --kl-divergence-base reads them too");
  OptionGroup(*command, "Report").path("--json", o->json_file, "FILE", kJsonHelp);
  command->footer(
      "Examples:\n"
      "  mixtape eval -m Qwen3-0.6B --text wiki.txt\n"
      "  mixtape eval -m Qwen3-0.6B-3bit --teacher Qwen3-0.6B --text wiki.txt --json -\n"
      "  mixtape eval -m Qwen3-0.6B --text wiki.txt --save-base wiki.base\n"
      "  mixtape eval -m Qwen3-0.6B-3bit --versus other-3bit --base wiki.base");
  command->callback([o, command] {
    o->finish(*command);
    run_eval(*o);
  });
}

}  // namespace mixtape::cli
