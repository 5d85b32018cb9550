#include "cli/bit_budget.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/options.h"
#include "cli/progress.h"
#include "cli/text_table.h"
#include "mixtape/core/counted.h"
#include "mixtape/quant/gguf_export.h"

namespace mixtape::cli {

void BitBudget::add(CLI::App& command) {
  OptionGroup group(command, "Output");
  CLI::Option* bpw = group.number(
      "--bpw", bits_per_weight, {.least = 1, .most = 32},
      "Choose bits and group of each module, or its type in a GGUF file, by its measured KL: so "
      "many bits per weight, 8 * bytes / weights of the whole model with scales, biases and what "
      "stays in float");
  bpw->default_str("");
  CLI::Option* bytes = group.bytes("--size", size, "The same, for so many bytes of weights: 300MB, 1.5GB");
  bpw->excludes(bytes);
  for (const char* other : {"--bits", "--group-size", "--type", "--plan", "--smaller-groups"}) {
    bpw->excludes(command.get_option(other));
    bytes->excludes(command.get_option(other));
  }
}

// Why a size cannot be had: what does not choose.
static std::string what_is_fixed(const QuantizationPlan& plan) {
  const std::vector<PlannedModule> floats = plan.skipped();
  if (floats.empty()) return "";
  return fmt::format("; {} of the matrices stay{} in float: {} ({})", floats.size(),
                     floats.size() == 1 ? "s" : "", floats[0].path, floats[0].reason);
}

std::int64_t BitBudget::bytes(const OpenedModel& opened, const QuantizationPlan& plan) const {
  const DType storage = model_dtype(*opened.source);
  const auto weights = static_cast<double>(storage_size(*opened.source, plan, storage).weights);
  const SizeRange range = possible_sizes(*opened.source, plan, storage);
  const std::int64_t asked =
      size > 0 ? size : static_cast<std::int64_t>(std::floor(bits_per_weight * weights / 8.0));
  const auto per_weight = [&](std::int64_t n) { return 8.0 * static_cast<double>(n) / weights; };
  require(asked >= range.least && asked <= range.most,
          size > 0 ? "--size" : fmt::format("--bpw {}", bits_per_weight), " asks for ", asked,
          " bytes of weights: expected ", range.least, " to ", range.most, ", ",
          fmt::format("{:.3f} to {:.3f} bits per weight", per_weight(range.least), per_weight(range.most)),
          what_is_fixed(plan));
  return asked;
}

void BitBudget::print(const OpenedModel& opened, const QuantizationPlan& plan,
                      const SensitivityOptions& o) const {
  const auto free = std::count_if(plan.modules.begin(), plan.modules.end(),
                                  [](const PlannedModule& m) { return m.by_default; });
  print_fact("budget", "{} of weights, for {} whose {} are chosen",
             format_bytes(static_cast<double>(bytes(opened, plan))), counted(free, "module"),
             plan.config.defaults.is_blocks() ? "types" : "bits and groups");
  print_fact("measured", "KL of each alone at up to {}, on up to {}; at the others the error of its outputs",
             counted(o.references.size(), "format"), counted(o.kl_rows, "row"));
}

void BitBudget::print(const CheckedPlan& checked) const {
  print_fact("chosen", "KL {:.6f} with all modules fitted{}", checked.kl,
             checked.kl < checked.first_kl ? fmt::format(", {:.6f} before swaps", checked.first_kl)
                                           : std::string(", which no swap made lower"));
}

nlohmann::json module_figures(const QuantizationPlan& plan, const std::vector<ModuleLosses>& losses) {
  nlohmann::json all = nlohmann::json::object();
  for (const ModuleLosses& m : losses) {
    const StoredAs& stored = plan.find(m.path)->stored;
    const auto chosen = std::find_if(m.formats.begin(), m.formats.end(),
                                     [&](const FormatLoss& f) { return f.format == *stored; });
    nlohmann::json& figures = all[m.path] = format_json(*stored);
    figures.update({{"kl_alone", chosen->kl}, {"measured", chosen->is_measured}});
  }
  return all;
}

}  // namespace mixtape::cli
