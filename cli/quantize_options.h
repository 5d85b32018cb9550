// Options of the commands that write a quantized model.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/bit_budget.h"
#include "cli/model_options.h"
#include "cli/outputs.h"
#include "mixtape/quant/gguf_export.h"
#include "mixtape/quant/gguf_mix.h"
#include "mixtape/quant/quantized_model.h"

namespace mixtape::cli {

// Whether a model goes into a GGUF file: by --format, mlx or gguf; if that is empty by the name's end, in any case.
bool is_gguf_output(const std::string& format, const std::string& out);

struct QuantizeOptions {
  int bits = 4;
  int group_size = 64;
  std::string type;  // of a GGUF file, a mix's name; empty: bits and groups
  std::string mode = "gpu";
  bool smaller_groups = false;
  bool quantize_routers = false;
  std::vector<std::string> bits_for;
  std::string plan_file;
  std::string saved_plan;
  std::string format;  // mlx or gguf; empty: by the name of `out`
  std::string out;
  BitBudget budget;             // of commands that measure; then plan() leaves modules open
  bool has_importance = false;  // the fit weights errors

  void add(CLI::App& command);
  // Once the command line is read. Throws for --type where no GGUF file will be written, and for options that would
  // say nothing beside it.
  void finish(const CLI::App& command) const;
  // Of --plan, --type, or of the other options; then --bits-for. Throws, naming a module, where an MLX directory cannot
  // hold it.
  QuantizationPlan plan(const OpenedModel& opened) const;
  // Of the GGUF file, if it will be one.
  std::optional<GgufPlan> plan_gguf(const OpenedModel& opened, const QuantizationPlan& plan) const {
    if (!is_gguf()) return std::nullopt;
    return mixtape::plan_gguf(*opened.source, plan, model_dtype(*opened.source),
                              type.empty() ? nullptr : &gguf_mix(type));
  }
  // The file of --save-plan.
  ReportFile place_for_plan(const std::vector<std::string>& inputs) const {
    return ReportFile(saved_plan, inputs, out, "--save-plan");
  }
  bool is_gguf() const { return is_gguf_output(format, out); }
  // Of a GGUF file, within the budget.
  bool chooses_types() const { return budget.is_set() && is_gguf(); }
  ModelOutput place(const ModelOptions& model) const { return ModelOutput(out, model.path, is_gguf()); }
  Rounding rounding() const { return mode == "cpu" ? Rounding::cpu : Rounding::gpu; }
};

// How many modules each format has where there are several, modules that stay in float with their reasons, the size,
// bits per weight; with `all` every module, layers that are alike in one line.
// The size is that of an MLX directory, or of `gguf` where that is not null.
void print_plan(const OpenedModel& opened, const QuantizationPlan& plan, const GgufPlan* gguf, bool all);

// "3 bits, group 64", "Q4_K", "float".
std::string stored_name(const StoredAs& stored);

// "Q4_1 210, F32 61"; then where codes have more room than they need, or too little.
void print_types(const QuantizationPlan& plan, const GgufPlan& gguf);

// Bytes of what will be written, and of its weights.
StorageSize written_size(const OpenedModel& opened, const QuantizationPlan& plan, const GgufPlan* gguf);

// What the file's types could not hold, if anything.
void print_loss(const GgufLoss& loss);

}  // namespace mixtape::cli
