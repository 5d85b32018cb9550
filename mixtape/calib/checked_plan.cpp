#include "mixtape/calib/checked_plan.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "mixtape/calib/fit_students.h"
#include "mixtape/calib/kept_states.h"
#include "mixtape/calib/module_kl.h"
#include "mixtape/calib/state_file.h"
#include "mixtape/quant/weight_codec.h"

namespace mixtape {
namespace {

double kl_of(const Teacher& teacher, const QuantizationPlan& plan, const CalibrationData& data,
             const SensitivityOptions& o, const RunHooks& hooks) {
  RunHooks silent = hooks;
  silent.progress = {};
  double kl = 0.0;
  const KeptStage kept(silent, "kl", [&](const std::filesystem::path& file) {
    StateFile{.figures = {{"kl", kl}}}.save(file);
  });
  if (const auto file = kept.find()) {
    read_figures(*file, [&](const nlohmann::json& json) { kl = number_of(json.at("kl")); });
    return kl;
  }
  const std::vector<FittedStudent> fitted =
      fit_students(teacher, plan, o.fits, statistics_rows(data, o), o.batch_size, silent);
  const ModuleKl measured(teacher, kl_rows(data, o), o.batch_size, silent,
                          fitted.back().student.parameters.quantized);
  kl = mean_of(measured.of_base()).value;
  if (kept.keep()) forget(silent, "fits");
  return kl;
}

// Formats that are worth their bytes, smallest first: each one has a lower KL than all that are smaller.
std::vector<WeightFormat> frontier(const PlannedModule& module, const ModuleLosses& losses, DType storage) {
  std::map<std::int64_t, FormatLoss> by_bytes;
  for (const FormatLoss& f : losses.formats) {
    const auto [at, is_new] =
        by_bytes.emplace(codec_of(f.format).stored_bytes(module.shape, f.format, storage), f);
    if (!is_new && f.kl < at->second.kl) at->second = f;
  }
  std::vector<WeightFormat> formats;
  double least = HUGE_VAL;
  for (const auto& [bytes, f] : by_bytes) {
    if (f.kl >= least) continue;
    least = f.kl;
    formats.push_back(f.format);
  }
  return formats;
}

// The format that the plan gives the module, and those beside it.
std::vector<WeightFormat> near_formats(const PlannedModule& module, const ModuleLosses& losses,
                                       DType storage) {
  const std::vector<WeightFormat> all = frontier(module, losses, storage);
  const auto chosen = std::find(all.begin(), all.end(), *module.stored);
  if (chosen == all.end()) return {};
  return {chosen == all.begin() ? chosen : chosen - 1, all.end() - chosen > 1 ? chosen + 2 : chosen + 1};
}

}  // namespace

CheckedPlan checked_plan_within(const Teacher& teacher, const QuantizationPlan& plan,
                                std::vector<ModuleLosses>& losses, const CalibrationData& data,
                                std::int64_t bytes, DType storage, const SensitivityOptions& options,
                                const RunHooks& hooks) {
  const ModelSource& source = teacher.source();
  QuantizationPlan first = plan_within(source, plan, losses, bytes, storage);
  const double first_kl = kl_of(teacher, first, data, options, within(hooks, "first plan "));
  std::map<std::string, std::vector<WeightFormat>> wanted;  // by path
  for (const ModuleLosses& m : losses) wanted[m.path] = near_formats(*first.find(m.path), m, storage);
  RunHooks swaps = within(hooks, "swaps ");
  swaps.progress = [&](StageProgress p) {
    p.stage = "measuring swaps";
    hooks.report(p);
  };
  measure_more(
      teacher, plan, data, options,
      [&](const ModuleLosses& m, const FormatLoss& f) {
        const std::vector<WeightFormat>& formats = wanted.at(m.path);
        return std::find(formats.begin(), formats.end(), f.format) != formats.end();
      },
      losses, swaps);
  QuantizationPlan second = plan_within(source, plan, losses, bytes, storage);
  const double second_kl = kl_of(teacher, second, data, options, within(hooks, "second plan "));
  if (second_kl < first_kl) return {std::move(second), second_kl, first_kl};
  return {std::move(first), first_kl, first_kl};
}

}  // namespace mixtape
