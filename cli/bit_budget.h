// --bpw and --size: how large the model may become whose bits and groups, or GGUF types, are chosen module by module.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/model_options.h"
#include "mixtape/calib/checked_plan.h"
#include "mixtape/quant/quantization_plan.h"

namespace mixtape::cli {

struct BitBudget {
  double bits_per_weight = 0.0;  // of the whole model; 0: not given
  std::int64_t size = 0;         // bytes of the weights; 0: not given

  // For commands that have the options of QuantizeOptions, which say the same otherwise.
  void add(CLI::App& command);
  bool is_set() const { return bits_per_weight > 0.0 || size > 0; }
  // In bytes, for a model whose modules `plan` leaves open. Throws invalid_argument for a budget that no choice of
  // formats can meet, saying which can.
  std::int64_t bytes(const OpenedModel& opened, const QuantizationPlan& plan) const;
  // What will be chosen, and measured for it.
  void print(const OpenedModel& opened, const QuantizationPlan& plan,
             const SensitivityOptions& options) const;
  // What came of it.
  void print(const CheckedPlan& checked) const;
};

// By module: its KL alone in the format that `plan` gives it, and whether that was measured.
nlohmann::json module_figures(const QuantizationPlan& plan, const std::vector<ModuleLosses>& losses);

}  // namespace mixtape::cli
