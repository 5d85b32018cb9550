#include "cli/quantize_options.h"

#include <fmt/core.h>

#include <map>
#include <span>

#include "cli/progress.h"

namespace mixtape::cli {

void QuantizeOptions::add(CLI::App& command) {
  OptionGroup group(command, "Output");
  group.path("-o,--out,--mlx-path", out, "DIR", "Directory to write; it must not exist")->required();
  group.whole("--bits,--q-bits", bits, {2, 3, 4, 5, 6, 8}, "Bits per code: 2, 3, 4, 5, 6 or 8");
  group.whole("--group-size,--q-group-size", group_size, {32, 64, 128},
              "Weights that share a scale: 32, 64 or 128");
  group.choice("--rounding,--mode", mode, {"gpu", "cpu"},
               "The reference's rules of rounding, of its gpu or its cpu path");
  group.flag("--smaller-groups", smaller_groups, "Where the group doesn't divide, take a smaller one");
  group.flag("--quantize-routers", quantize_routers, "Routers to 8 bits, group 64, instead of float");
}

QuantizationPlan QuantizeOptions::plan(const OpenedModel& opened) const {
  QuantizationOptions options;
  options.params = {bits, group_size};
  options.quantize_routers = quantize_routers;
  options.smaller_groups = smaller_groups;
  return plan_quantization(*opened.source, options);
}

// A line for each module that stays in float; without `all` one for each reason that more than three share.
static void print_skipped(const QuantizationPlan& plan, bool all) {
  constexpr std::size_t kFew = 3;
  std::map<std::string, std::vector<PlannedModule>> by_reason;
  for (const PlannedModule& m : plan.skipped()) by_reason[m.reason].push_back(m);
  for (const auto& [reason, modules] : by_reason) {
    const bool each = all || modules.size() <= kFew;
    for (const PlannedModule& m : std::span(modules).first(each ? modules.size() : 1)) {
      fmt::print("in float     {} {}{} ({})\n", m.path, str(m.shape),
                 each ? "" : fmt::format(" and {} more", modules.size() - 1), reason);
    }
  }
}

void print_plan(const OpenedModel& opened, const QuantizationPlan& plan, bool all) {
  std::int64_t quantized = 0;
  for (const PlannedModule& m : plan.modules) {
    quantized += m.stored.has_value();
    if (!all || (!m.stored && m.reason.empty())) continue;
    const std::string stored =
        m.stored ? fmt::format("{} bits, group {}", m.stored->bits, m.stored->group_size) : "float";
    fmt::print("{:<56} {:<18} {}\n", m.path, str(m.shape), stored);
  }
  for (const std::string& name : plan.left_out) {
    fmt::print("left out     {} (the model has no such tensor)\n", name);
  }
  print_skipped(plan, all);
  const StorageSize size = storage_size(*opened.source, plan, model_dtype(*opened.source));
  fmt::print("quantized    {} modules, {}, {:.3f} bits per weight\n", quantized,
             format_bytes(static_cast<double>(size.bytes)), size.bits_per_weight());
}

}  // namespace mixtape::cli
