#include "cli/quantize_options.h"

#include <fmt/core.h>

#include "cli/progress.h"

namespace mixtape::cli {

void QuantizeOptions::add(CLI::App& command) {
  command.add_option("--out", out, "Directory to write; it must not exist")->required();
  command.add_option("--bits", bits, "Bits per code: 2, 3, 4, 5, 6 or 8")
      ->check(CLI::IsMember({2, 3, 4, 5, 6, 8}))
      ->capture_default_str();
  command.add_option("--group-size", group_size, "Weights that share a scale: 32, 64 or 128")
      ->check(CLI::IsMember({32, 64, 128}))
      ->capture_default_str();
  command.add_option("--mode", mode, "Rounding rules of the reference's gpu or cpu path")
      ->check(CLI::IsMember({"gpu", "cpu"}))
      ->capture_default_str();
  command.add_flag("--smaller-groups", smaller_groups, "Where the group doesn't divide, take a smaller one");
  command.add_flag("--quantize-routers", quantize_routers, "Routers to 8 bits, group 64, instead of float");
}

QuantizationPlan QuantizeOptions::plan(const OpenedModel& opened) const {
  QuantizationOptions options;
  options.params = {bits, group_size};
  options.quantize_routers = quantize_routers;
  options.smaller_groups = smaller_groups;
  return plan_quantization(*opened.source, options);
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
  for (const PlannedModule& m : plan.skipped()) {
    fmt::print("in float     {} {} ({})\n", m.path, str(m.shape), m.reason);
  }
  const StorageSize size = storage_size(*opened.source, plan, model_dtype(*opened.source));
  fmt::print("quantized    {} modules, {}, {:.3f} bits per weight\n", quantized,
             format_bytes(static_cast<double>(size.bytes)), size.bits_per_weight());
}

}  // namespace mixtape::cli
