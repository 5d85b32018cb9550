// mixtape eval: perplexity of a model, and its distance from a teacher.
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/evaluation_table.h"
#include "cli/inputs.h"
#include "cli/model_options.h"
#include "cli/model_path.h"
#include "cli/open_device.h"
#include "cli/outputs.h"
#include "cli/progress.h"
#include "cli/quote.h"
#include "cli/text_options.h"
#include "cli/training_hooks.h"
#include "mixtape/calib/base_logits.h"
#include "mixtape/calib/teacher.h"

namespace mixtape::cli {
namespace {

struct EvalOptions {
  ModelOptions model;
  std::string teacher, versus, base, save_base;
  std::vector<std::string> text_files;
  std::int64_t length = 512;
  std::int64_t max_tokens = 0;
  std::int64_t batch_size = 4;
  std::string json_file;
};

void check(const CLI::App& command, const EvalOptions& o) {
  for (const char* name : {"--max-tokens", "--length"})
    require(!o.text_files.empty() || command.count(name) == 0, name,
            " has no effect: the windows are those of --base");
  require(o.base.empty() || (o.teacher.empty() && o.save_base.empty()),
          "--base is the teacher: expected no --teacher or --save-base beside it");
  require(o.versus.empty() || !o.teacher.empty() || !o.base.empty(),
          "--versus compares two models by their distance from a teacher: expected --teacher or --base too");
  require(!o.text_files.empty() || !o.base.empty(), "eval: found no text, expected --text or --base");
}

class EvalRun {
 public:
  explicit EvalRun(const EvalOptions& options)
      : o_(options),
        report_(o_.json_file, inputs(o_)),
        device_(open_device(o_.model.device)),
        opened_(o_.model.open()),
        dtype_(o_.model.compute_dtype(opened_.config)),
        tape_(device_) {
    if (!o_.teacher.empty()) teacher_source_ = open_model(find_model(o_.teacher));
    if (!o_.versus.empty()) versus_ = open_model(find_model(o_.versus));
    if (!o_.base.empty()) base_ = std::make_unique<BaseLogits>(o_.base);
    prepare_rows();
    if (!o_.save_base.empty()) prepare_file();
  }

  void run() {
    if (file_) save();
    if (teacher_source_ && !base_) {
      teacher_ = std::make_unique<Teacher>(*teacher_source_, dtype_, false, tape_);
    }
    const Evaluation result = measure(*opened_.source, "evaluating");
    nlohmann::json json = figures(result);
    json["first_position"] = base_ ? base_->first_position() : 0;
    if (!versus_) {
      show(result);
    } else {
      const Evaluation other = measure(*versus_, "evaluating --versus");
      display_.close();
      print_figures(o_.model.path, result);
      print_figures(o_.versus, other);
      const Estimate difference = kl_difference(result, other);
      fmt::print("KL difference    {:+.6f} +- {:.6f}, {} minus {}, paired\n", difference.value,
                 difference.error, o_.versus, o_.model.path);
      json["versus"] = figures(other);
      json["kl_difference"] = {{"mean", difference.value}, {"error", difference.error}};
    }
    report_.write(json);
  }

 private:
  // Windows of `length` tokens, as perplexity is usually counted: length-1 predictions each, nothing in front
  // but BOS where the tokenizer adds one.
  void prepare_rows() {
    if (!o_.text_files.empty()) {
      warn_if_beyond_context(opened_.config, o_.length);
      TextOptions text;
      text.text_files = o_.text_files;
      text.length = o_.length;
      text.max_tokens = o_.max_tokens;
      rows_ = text.file_rows(opened_.tokenizer, opened_.config.vocab_size);
    }
    if (!base_) return;
    base_->check_vocabulary(opened_.config.vocab_size);
    base_->begin_rows_with(opened_.tokenizer.prefix());
    if (!rows_.empty()) base_->check_rows(rows_);
    rows_ = base_->rows();
  }

  static std::vector<std::string> inputs(const EvalOptions& o) {
    std::vector<std::string> all = {o.model.path, o.teacher, o.versus, o.base};
    all.insert(all.end(), o.text_files.begin(), o.text_files.end());
    return all;
  }

  void prepare_file() {
    refuse_input("--save-base", o_.save_base, inputs(o_));
    require(o_.length >= 3, "--length is ", o_.length, ", expected 3 or more with --save-base");
    file_ = place_for(
        "--save-base", o_.save_base,
        base_logits_bytes(static_cast<std::int64_t>(rows_.size()), o_.length, opened_.config.vocab_size));
  }

  // The teacher of the comparison is then what the file holds: another run with --base says the same.
  void save() {
    const ModelSource& source = teacher_source_ ? *teacher_source_ : *opened_.source;
    require(source.config().vocab_size == opened_.config.vocab_size, "eval: the teacher's vocabulary has ",
            source.config().vocab_size, " tokens, expected ", opened_.config.vocab_size);
    const Teacher teacher(source, dtype_, false, tape_);
    save_base_logits(*file_, teacher.model(), tape_, rows_, o_.batch_size, display_.hooks());
    file_->commit();
    display_.close();
    base_ = std::make_unique<BaseLogits>(o_.save_base);
    fmt::print("wrote            {}, {}\n", printable(o_.save_base),
               format_bytes(static_cast<double>(std::filesystem::file_size(o_.save_base))));
  }

  Evaluation measure(const ModelSource& source, const std::string& stage) {
    const Teacher student(source, dtype_, false, tape_);
    const CausalLm* teacher = teacher_ ? &teacher_->model() : nullptr;
    const Evaluation result =
        base_ ? evaluate(student.model(), *base_, tape_, rows_, o_.batch_size, display_.hooks(), stage)
              : evaluate(student.model(), teacher, tape_, rows_, o_.batch_size, display_.hooks(), stage);
    require_numbers(source.where(), result.mean_nll);
    if (result.kl) require_numbers("the teacher", result.teacher_perplexity);
    return result;
  }

  // Infinity is what a token of probability 0 costs; a NaN is a broken model's.
  static void require_numbers(const std::string& model, double figure) {
    if (std::isnan(figure))
      fail(ErrorCode::format, model, ": found NaN among its logits on this text, expected numbers");
  }

  void show(const Evaluation& result) {
    display_.close();
    print_figures("", result);
  }

  const EvalOptions& o_;
  ReportFile report_;
  Device device_;
  OpenedModel opened_;
  DType dtype_;
  Tape tape_;
  std::unique_ptr<ModelSource> teacher_source_, versus_;
  std::unique_ptr<BaseLogits> base_;
  std::unique_ptr<Teacher> teacher_;
  std::unique_ptr<AtomicFile> file_;
  std::vector<TokenRow> rows_;
  StageDisplay display_;
};

}  // namespace

void add_eval(CLI::App& app, int&) {
  CLI::App* command =
      app.add_subcommand("eval", "Perplexity of a model; with --teacher also KL and top-1 agreement.");
  auto o = std::make_shared<EvalOptions>();
  o->model.add(*command);
  o->model.add_dtype(*command);
  OptionGroup model(*command, "Model");
  model.path("--teacher", o->teacher, "MODEL", "Compare with this model");
  model.path("--versus", o->versus, "MODEL", "Another student: which of the two is closer to the teacher");
  OptionGroup data(*command, "Data");
  data.paths("--text", o->text_files, "FILE", "Text; may be repeated; with --base not needed");
  data.whole("--length,--max-seq-length", o->length, {.least = 2, .most = 131072},
             "Tokens per window; each but the first is predicted");
  data.whole("--max-tokens", o->max_tokens, {.least = 0}, "Use only the first tokens of the text, 0: all");
  data.whole("--batch,--batch-size", o->batch_size, {.least = 1}, "Windows at a time");
  data.path(
      "--save-base", o->save_base, "FILE",
      "Keep the teacher's (without --teacher the model's) log-probabilities of each window's second half "
      "here; llama-perplexity --kl-divergence-base reads them too");
  data.path("--base", o->base, "FILE",
            "Compare with what --save-base or llama-perplexity kept, on its windows");
  OptionGroup(*command, "Report").path("--json", o->json_file, "FILE", kJsonHelp);
  command->footer(
      "Examples:\n"
      "  mixtape eval -m Qwen3-0.6B --text wiki.txt\n"
      "  mixtape eval -m Qwen3-0.6B-3bit --teacher Qwen3-0.6B --text wiki.txt --json -\n"
      "  mixtape eval -m Qwen3-0.6B --text wiki.txt --save-base wiki.base\n"
      "  mixtape eval -m Qwen3-0.6B-3bit --versus other-3bit --base wiki.base");
  command->callback([o, command] {
    check(*command, *o);
    require_files(o->text_files);
    require_files({o->base});
    refuse_same_place({{"--save-base", o->save_base}, {"--json", o->json_file}});
    EvalRun(*o).run();
  });
}

}  // namespace mixtape::cli
