#include "mixtape/calib/mixed_plan.h"

#include <algorithm>
#include <map>

#include "mixtape/quant/gguf_export.h"
#include "mixtape/quant/weight_codec.h"

namespace mixtape {
namespace {

bool is_in_blocks(const QuantizationPlan& plan) { return plan.config.defaults.is_blocks(); }

// Of everything but the modules that are chosen.
std::int64_t other_bytes(const ModelSource& source, const QuantizationPlan& plan, DType storage) {
  std::int64_t bytes = is_in_blocks(plan) ? gguf_tensor_bytes(source, plan, storage)
                                          : storage_size(source, plan, storage).bytes;
  for (const PlannedModule& m : plan.modules) {
    if (m.by_default) bytes -= codec_of(*m.stored).stored_bytes(m.shape, *m.stored, storage);
  }
  return bytes;
}

// The format that most weights of the plan have.
WeightFormat commonest(const QuantizationPlan& plan, const std::map<std::string, StoredAs>& modules) {
  std::map<std::string, std::pair<std::int64_t, WeightFormat>> weights;  // by the format's name
  for (const PlannedModule& m : plan.modules) {
    const auto found = modules.find(m.path);
    if (found == modules.end() || !found->second) continue;
    auto& [count, format] = weights[found->second->name()];
    count += m.shape.numel();
    format = *found->second;
  }
  if (weights.empty()) return plan.config.defaults;
  return std::max_element(weights.begin(), weights.end(),
                          [](const auto& a, const auto& b) { return a.second.first < b.second.first; })
      ->second.second;
}

// Rather than because of its kind or size.
bool is_asked_float(const PlannedModule& m, bool in_blocks) {
  return !m.stored && (m.kind == TensorKind::matrix || m.kind == TensorKind::embedding) &&
         !candidate_formats(m.shape.cols(), in_blocks).empty();
}

std::vector<Choice> choices_of(const PlannedModule& module, const std::vector<FormatLoss>& formats,
                               DType storage) {
  std::vector<Choice> choices;
  for (const FormatLoss& f : formats)
    choices.push_back({codec_of(f.format).stored_bytes(module.shape, f.format, storage), f.kl});
  return choices;
}

}  // namespace

QuantizationOptions open_options(bool in_blocks) {
  if (in_blocks) return {.params = BlockType::q4_0};
  return {.params = {4, 64}, .smaller_groups = true};
}

SizeRange possible_sizes(const ModelSource& source, const QuantizationPlan& plan, DType storage) {
  std::vector<std::vector<Choice>> modules;
  for (const PlannedModule& m : plan.modules) {
    if (!m.by_default) continue;
    std::vector<FormatLoss> formats;
    for (const WeightFormat& f : candidate_formats(m.shape.cols(), is_in_blocks(plan)))
      formats.push_back({f});
    modules.push_back(choices_of(m, formats, storage));
  }
  const SizeRange chosen = possible_sizes(modules);
  const std::int64_t others = other_bytes(source, plan, storage);
  return {chosen.least + others, chosen.most + others};
}

QuantizationPlan plan_within(const ModelSource& source, const QuantizationPlan& plan,
                             const std::vector<ModuleLosses>& losses, std::int64_t bytes, DType storage) {
  const SizeRange range = possible_sizes(source, plan, storage);
  require(bytes >= range.least && bytes <= range.most, "plan of ", bytes, " bytes: expected ", range.least,
          " to ", range.most);
  std::vector<std::vector<Choice>> modules;
  for (const ModuleLosses& m : losses) {
    const PlannedModule* module = plan.find(m.path);
    require(module && module->by_default, "plan: '", m.path, "' is no module that is free to be chosen");
    modules.push_back(choices_of(*module, m.formats, storage));
  }
  const std::vector<std::size_t> chosen = allocate(modules, bytes - other_bytes(source, plan, storage));
  QuantizationOptions options;
  for (const PlannedModule& m : plan.modules) {
    if (m.stored || is_asked_float(m, is_in_blocks(plan))) options.modules.emplace(m.path, m.stored);
  }
  for (std::size_t i = 0; i < losses.size(); ++i)
    options.modules.at(losses[i].path) = losses[i].formats[chosen[i]].format;
  options.params = commonest(plan, options.modules);
  return plan_quantization(source, options);
}

}  // namespace mixtape
