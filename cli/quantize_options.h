// Options of the commands that write a quantized model.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/model_options.h"
#include "mixtape/quant/quantized_model.h"

namespace mixtape::cli {

struct QuantizeOptions {
  int bits = 4;
  int group_size = 64;
  std::string mode = "gpu";
  bool smaller_groups = false;
  bool quantize_routers = false;
  std::string out;

  void add(CLI::App& command);
  QuantizationPlan plan(const OpenedModel& opened) const;
  Rounding rounding() const { return mode == "cpu" ? Rounding::cpu : Rounding::gpu; }
};

// Modules that stay in float with their reasons, the size, bits per weight; with `all` every module.
void print_plan(const OpenedModel& opened, const QuantizationPlan& plan, bool all);

}  // namespace mixtape::cli
