// What `mixtape calibrate` can be told.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/checkpoint_options.h"
#include "cli/model_options.h"
#include "cli/quantize_options.h"
#include "cli/text_options.h"
#include "mixtape/calib/dwq.h"
#include "mixtape/calib/memory.h"
#include "mixtape/calib/recipe.h"
#include "mixtape/calib/work.h"

namespace mixtape::cli {

struct CalibrateOptions {
  ModelOptions model;
  TextOptions text;
  QuantizeOptions quantize;
  CheckpointOptions checkpoint;
  DwqOptions dwq;
  SensitivityOptions measured;       // by the recipe; without fits and batch size
  std::int64_t statistics_rows = 0;  // training rows, at most; as the model allows
  std::string recipe = "good";
  std::string fit = "gptq";
  std::string trained;  // nothing, scales, blocks or codes; empty: as the recipe says
  std::string target_dir;
  std::string json_file, html_file;
  std::string saved_imatrix;
  bool reference_compat = false;
  bool one_pass = false;  // as many steps as one pass over the rows takes
  bool chooses_batch = true, chooses_steps = true, chooses_validations = true;  // by the recipe
  bool stream_teacher = false;
  bool dry_run = false;
  bool write_on_interrupt = false;

  void add(CLI::App& command);
  // Once the command line is read: what options say together, and whether the places that they name can be made.
  // `is_first`: this process reads the text, so its files are looked for, and makes the places.
  void finish(const CLI::App& command, bool is_first);
  // What the recipe decides and the command line does not name.
  void settle(const ModelConfig& config, const Device& device);

  // Whether --save-plan names what the run that is gone on with wrote.
  bool has_written_plan() const;
  std::vector<std::string> inputs() const;  // files and directories that are read
  // For what is written of a result.
  nlohmann::json settings() const;

  bool trains() const { return trained != "nothing"; }
  // What is measured where bits are chosen.
  SensitivityOptions sensitivity() const;
  // Of the first of `devices`, once it is known how many rows train.
  MemoryUse memory_use(std::int64_t training_rows, std::int64_t devices) const;
  // Of rows as they are or will be, and of the first of `devices`.
  WorkUse work_use(const CalibrationData& data, std::int64_t devices) const;
  // On how many the KL by part is measured, which --html shows; 0 without that. The same whatever shares the run.
  std::int64_t part_tokens(const ModelConfig& config, const QuantizationPlan& plan,
                           const CalibrationData& data, const Device& device) const;
  // Fits, then training, as far as asked for.
  std::vector<Method> methods() const;
};

}  // namespace mixtape::cli
