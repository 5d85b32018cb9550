// Options of the commands that write a quantized model.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/model_options.h"
#include "cli/outputs.h"
#include "mixtape/quant/quantized_model.h"

namespace mixtape::cli {

struct QuantizeOptions {
  int bits = 4;
  int group_size = 64;
  std::string mode = "gpu";
  bool smaller_groups = false;
  bool quantize_routers = false;
  std::vector<std::string> bits_for;
  std::string plan_file;
  std::string saved_plan;
  std::string out;

  void add(CLI::App& command);
  // Of --plan, or of the other options; then --bits-for.
  QuantizationPlan plan(const OpenedModel& opened) const;
  // The file of --save-plan.
  ReportFile place_for_plan(const std::vector<std::string>& inputs) const {
    return ReportFile(saved_plan, inputs, out, "--save-plan");
  }
  Rounding rounding() const { return mode == "cpu" ? Rounding::cpu : Rounding::gpu; }
};

// How many modules each format has where there are several, modules that stay in float with their reasons, the size,
// bits per weight; with `all` every module.
void print_plan(const OpenedModel& opened, const QuantizationPlan& plan, bool all);

}  // namespace mixtape::cli
