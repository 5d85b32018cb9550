#include "cli/evaluator.h"

#include <fmt/core.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/finite_weights.h"
#include "cli/inputs.h"
#include "cli/json_report.h"
#include "cli/model_path.h"
#include "cli/outputs.h"
#include "cli/progress.h"
#include "cli/quote.h"
#include "cli/text_options.h"
#include "cli/text_table.h"
#include "mixtape/calib/calibrate.h"
#include "mixtape/core/counted.h"

namespace mixtape::cli {

// Infinity is what a token of probability 0 costs; a NaN is a broken model's.
static void require_numbers(const std::string& name, const ModelSource* model, double figure) {
  if (std::isnan(figure))
    fail(ErrorCode::format, name, ": found NaN among its logits on this text, expected numbers",
         model ? weight_fault(*model) : "");
}

void EvaluatorOptions::add(CLI::App& command) {
  OptionGroup(command, "Model").path("--teacher", teacher, "MODEL", "Compare with this model");
  OptionGroup data(command, "Data");
  data.paths("--text", text_files, "FILE", "Text; may be repeated; with --base not needed");
  data.whole("--length,--max-seq-length", length, {.least = 2, .most = 131072},
             "Tokens per window; each but the first is predicted");
  data.whole("--max-tokens", max_tokens, {.least = 0}, "Use only the first tokens of the text, 0: all");
  data.whole("--batch,--batch-size", batch_size, {.least = 1}, "Windows at a time");
  data.path("--base", base, "FILE",
            "Compare with what eval --save-base or llama-perplexity kept, on its windows");
}

void EvaluatorOptions::finish(const CLI::App& command) {
  has_length = command.count("--length") > 0;
  for (const char* name : {"--max-tokens", "--length"})
    require(!text_files.empty() || command.count(name) == 0, name,
            " has no effect: the windows are those of --base");
  require(base.empty() || teacher.empty(), "--base is the teacher: expected no --teacher beside it");
  require(!text_files.empty() || !base.empty(), command.get_name(),
          ": found no text, expected --text or --base");
  require_files(text_files);
  require_files({base});
  for (std::size_t i = 0; i < text_files.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j)
      require(!is_same_place(text_files[i], text_files[j]), "--text: ", text_files[i],
              " is given twice, expected once");
  }
}

std::vector<std::string> EvaluatorOptions::inputs() const {
  std::vector<std::string> all = {teacher, base};
  all.insert(all.end(), text_files.begin(), text_files.end());
  return all;
}

Evaluator::Evaluator(const EvaluatorOptions& options, const ModelOptions& model, const OpenedModel& opened,
                     const std::vector<const ModelSource*>& models, const Device& device)
    : o_(options), models_(models.size()), vocab_size_(opened.config.vocab_size), tape_(device) {
  if (!o_.teacher.empty()) teacher_source_ = open_model(find_model(o_.teacher));
  choose_dtype(model, models);
  if (!o_.base.empty()) base_ = std::make_unique<BaseLogits>(o_.base);
  prepare_rows(opened);
}

void Evaluator::choose_dtype(const ModelOptions& model, const std::vector<const ModelSource*>& models) {
  std::vector<const ModelSource*> all = models;
  if (teacher_source_) all.push_back(teacher_source_.get());
  dtype_ = model.dtype == "auto" ? common_compute_dtype(all) : model.compute_dtype(all.front()->config());
  print_fact("activations", "{}", name(dtype_));
}

// Windows of `length` tokens, as perplexity is usually counted: length-1 predictions each, nothing in front
// but BOS where the tokenizer adds one.
void Evaluator::prepare_rows(const OpenedModel& opened) {
  if (base_ && !o_.has_length) o_.length = std::ssize(base_->rows().at(0));
  if (!o_.text_files.empty()) {
    warn_if_beyond_context(opened.config, o_.length);
    TextOptions text;
    text.text_files = o_.text_files;
    text.length = o_.length;
    text.max_tokens = o_.max_tokens;
    rows_ = text.file_rows(opened.tokenizer, vocab_size_);
  }
  if (!base_) return;
  base_->check_vocabulary(vocab_size_);
  base_->begin_rows_with(opened.tokenizer.prefix());
  if (!rows_.empty()) base_->check_rows(rows_);
  rows_ = base_->rows();
}

void Evaluator::keep_base(AtomicFile& file, const std::string& name, const ModelSource& model,
                          StageDisplay& display) {
  const ModelSource& source = teacher_source_ ? *teacher_source_ : model;
  require(source.config().vocab_size == vocab_size_, "the teacher's vocabulary has ",
          source.config().vocab_size, " tokens, expected ", vocab_size_);
  const Teacher teacher(source, dtype_, false, tape_);
  blaming_weights(
      source, [&] { save_base_logits(file, teacher.model(), tape_, rows_, o_.batch_size, display.hooks()); });
  file.commit();
  display.close();
  base_ = std::make_unique<BaseLogits>(name);
  fmt::print("wrote            {}, {}\n", printable(name),
             format_bytes(static_cast<double>(std::filesystem::file_size(name))));
}

nlohmann::json Evaluator::record() const {
  nlohmann::json json = {
      {"device", tape_.device().name()},
      {"dtype", name(dtype_)},
      {"first_position", first_position()},
      {"text", {{"files", o_.text_files}, {"length", o_.length}, {"report", to_json(std::span(rows_))}}}};
  if (teacher_source_) json["teacher"] = model_json(o_.teacher, teacher_source_->config());
  if (!o_.base.empty()) json["base"] = o_.base;
  return json;
}

std::string Evaluator::told_teacher() const {
  if (!o_.base.empty()) return "what " + o_.base + " holds of it";
  return o_.teacher;
}

std::string Evaluator::told_text() const {
  std::string files;
  for (const std::string& file : o_.text_files) files += (files.empty() ? "" : ", ") + file;
  return fmt::format("{}, {} of {} tokens", files.empty() ? "the text of " + o_.base : files,
                     counted(rows_.size(), "window"), o_.length);
}

Evaluation Evaluator::measure(const ModelSource& model, const std::string& stage, StageDisplay& display) {
  using Keeps = ModelReference::Keeps;
  if (teacher_source_ && !base_ && !teacher_) {
    teacher_ = std::make_unique<Teacher>(*teacher_source_, dtype_, false, tape_);
    reference_ = std::make_unique<ModelReference>(teacher_->model(), tape_,
                                                  models_ > 1 ? Keeps::activations : Keeps::nothing);
  }
  const Teacher student(model, dtype_, false, tape_);
  Reference* reference = base_ ? static_cast<Reference*>(base_.get()) : reference_.get();
  const Evaluation result =
      reference ? evaluate(student.model(), *reference, tape_, rows_, o_.batch_size, display.hooks(), stage)
                : evaluate(student.model(), nullptr, tape_, rows_, o_.batch_size, display.hooks(), stage);
  require_numbers(model.where(), &model, result.mean_nll);
  if (result.kl) require_numbers("the teacher", teacher_source_.get(), result.teacher_perplexity);
  return result;
}

}  // namespace mixtape::cli
