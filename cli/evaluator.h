// Models measured on one text, beside one teacher: what eval and compare share.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/model_options.h"
#include "cli/training_hooks.h"
#include "mixtape/calib/base_logits.h"
#include "mixtape/calib/evaluate.h"
#include "mixtape/calib/teacher.h"

namespace mixtape::cli {

struct EvaluatorOptions {
  std::string teacher, base;
  std::vector<std::string> text_files;
  std::int64_t length = 512;  // tokens of a window, the first of which is not predicted
  std::int64_t max_tokens = 0;
  std::int64_t batch_size = 4;

  bool has_length = false;  // else a base's length counts

  void add(CLI::App& command);
  // Throws for options that have no effect, files that are not there, and files that are given twice.
  void finish(const CLI::App& command);
  // The files and directories that are read.
  std::vector<std::string> inputs() const;
};

class Evaluator {
 public:
  // The text becomes windows by the tokenizer of `opened`, one of `models`. All models are computed in one type, which
  // is printed: f32 where one of them or the teacher is stored so. Of several models the teacher's activations are kept.
  Evaluator(const EvaluatorOptions& options, const ModelOptions& model, const OpenedModel& opened,
            const std::vector<const ModelSource*>& models, const Device& device);

  const std::vector<TokenRow>& rows() const { return rows_; }
  // Of each window; those before it are not counted.
  std::int64_t first_position() const { return base_ ? base_->first_position() : 0; }
  // What --json says of the run beside models and figures.
  nlohmann::json record() const;
  // For people: what stands for the teacher, and the text with its windows.
  std::string told_teacher() const;
  std::string told_text() const;
  // Writes what the teacher, or without one `model`, says of each window's second half to `file`, named `name`, and
  // takes that for the teacher from then on.
  void keep_base(AtomicFile& file, const std::string& name, const ModelSource& model, StageDisplay& display);
  // Throws format, naming the model, for NaN among its logits.
  Evaluation measure(const ModelSource& model, const std::string& stage, StageDisplay& display);

 private:
  void choose_dtype(const ModelOptions& model, const std::vector<const ModelSource*>& models);
  void prepare_rows(const OpenedModel& opened);

  EvaluatorOptions o_;
  DType dtype_ = DType::bf16;
  std::size_t models_;
  std::int64_t vocab_size_;
  Tape tape_;
  std::unique_ptr<ModelSource> teacher_source_;
  std::unique_ptr<BaseLogits> base_;
  std::unique_ptr<Teacher> teacher_;
  std::unique_ptr<ModelReference> reference_;  // of teacher_
  std::vector<TokenRow> rows_;
};

}  // namespace mixtape::cli
