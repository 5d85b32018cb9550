#include "cli/quantize_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "cli/inputs.h"
#include "cli/plan_table.h"
#include "cli/progress.h"
#include "cli/quote.h"
#include "cli/terminal.h"
#include "cli/text_table.h"
#include "mixtape/calib/mixed_plan.h"
#include "mixtape/core/counted.h"
#include "mixtape/io/gguf_model.h"
#include "mixtape/quant/plan_file.h"

namespace mixtape::cli {

void QuantizeOptions::add(CLI::App& command) {
  OptionGroup group(command, "Output");
  group.path("-o,--out,--mlx-path", out, "DIR", "Directory or GGUF file to write; it must not exist")
      ->required();
  group.choice("--format", format, {"mlx", "gguf"},
               "mlx: a directory; gguf: a file for llama.cpp; if not given, by whether --out ends in .gguf");
  CLI::Option* same_bits =
      group.whole("--bits,--q-bits", bits, {2, 3, 4, 5, 6, 8}, "Bits per code: 2, 3, 4, 5, 6 or 8");
  CLI::Option* same_group = group.whole("--group-size,--q-group-size", group_size, {32, 64, 128},
                                        "Weights that share a scale: 32, 64 or 128");
  std::vector<std::string> mixes;
  for (const GgufMix& mix : gguf_mixes()) mixes.push_back(mix.name);
  group
      .choice("--type", type, mixes,
              "Types of a GGUF file, chosen by matrix as llama-quantize does: q2_k, q3_k_s q3_k_m q3_k_l, "
              "q4_0 q4_1, "
              "q4_k_s q4_k_m, q5_0 q5_1, q5_k_s q5_k_m, q6_k, q8_0")
      ->excludes(same_bits)
      ->excludes(same_group);
  group
      .paths(
          "--bits-for", bits_for, "GLOB=BITS[:GROUP]",
          "Bits, float or a type (q6_k) of modules whose path matches, '*.down_proj=6'; may be repeated: the "
          "last counts")
      ->allow_extra_args(false)
      ->each([](const std::string& rule) { ModuleRule::parse(rule, "--bits-for"); });
  group.choice("--rounding,--mode", mode, {"gpu", "cpu"},
               "The reference's rules of rounding, of its gpu or its cpu path");
  group.flag("--smaller-groups", smaller_groups, "Where the group doesn't divide, take a smaller one");
  group.flag("--quantize-routers", quantize_routers, "Routers to 8 bits, group 64, instead of float");
  group.path("--save-plan", saved_plan, "FILE", "Write how each module is stored; -: to standard output");
  group
      .path("--plan", plan_file, "FILE",
            "Store each module as a plan of --save-plan says, not as --bits does")
      ->excludes(same_bits)
      ->excludes(same_group)
      ->excludes(command.get_option("--type"));
}

bool is_gguf_output(const std::string& format, const std::string& out) {
  if (!format.empty()) return format == "gguf";
  return ending_of(out) == ".gguf";
}

void QuantizeOptions::finish(const CLI::App& command) const {
  require(type.empty() || is_gguf(), "--type ", type, " is a GGUF file's: --out is '", out,
          "', expected a name that ends in .gguf, or --format gguf");
  if (type.empty() && !chooses_types()) return;
  for (const char* name : {"--rounding", "--smaller-groups"})
    require(command.count(name) == 0, name,
            " has no effect: ", type.empty() ? "a GGUF file's types are chosen" : "--type " + type);
}

// A file of blocks can be a teacher, but not the model that it was made of. Of its types that of most weights is named.
static void warn_of_blocks(const ModelSource& source) {
  const GgufFile* file = gguf_file_of(source);
  if (file == nullptr) return;
  std::map<std::string, std::int64_t> weights;
  for (const GgufTensor& t : file->tensors()) {
    const GgufTypeInfo& type = gguf_type_info(t.type);
    if (type.block_elements > 1) weights[type.name] += t.shape.numel();
  }
  if (weights.empty()) return;
  const auto most = std::max_element(weights.begin(), weights.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  warn(fmt::format("{} is quantized already ({}{}): what it holds is taken for the original", source.where(),
                   weights.size() > 1 ? "mostly " : "", most->first));
}

QuantizationPlan QuantizeOptions::plan(const OpenedModel& opened) const {
  require_files({plan_file});
  warn_of_blocks(*opened.source);
  QuantizationOptions options = {.params = {bits, group_size}};
  if (budget.is_set()) options = open_options(chooses_types());
  if (!type.empty()) options = mix_options(gguf_mix(type), opened.config, has_importance);
  if (!plan_file.empty()) options = read_plan(plan_file, *opened.source);
  for (const std::string& rule : bits_for) options.rules.push_back(ModuleRule::parse(rule, "--bits-for"));
  options.quantize_routers = quantize_routers;
  options.smaller_groups |= smaller_groups;
  QuantizationPlan plan = plan_quantization(*opened.source, options);
  const std::vector<PlannedModule> skipped = plan.skipped();
  require(std::any_of(plan.modules.begin(), plan.modules.end(),
                      [](const PlannedModule& m) { return m.stored.has_value(); }),
          "no matrix of the model would be quantized: ", skipped.empty() ? "there is none" : skipped[0].path,
          ": ", skipped.empty() ? "" : skipped[0].reason,
          "; --smaller-groups or another --group-size may help");
  if (!is_gguf()) refuse_for_mlx(*opened.source, plan);
  return plan;
}

// A line for what stays in float and is alike but for its layer; without `all` one for each reason that more than three
// share.
static void print_skipped(const QuantizationPlan& plan, bool all) {
  constexpr std::size_t kFew = 3;
  const std::vector<PlannedModule> skipped = plan.skipped();
  std::map<std::string, std::vector<const PlannedModule*>> by_reason;
  for (const PlannedModule& m : skipped) by_reason[m.reason].push_back(&m);
  for (const auto& [reason, modules] : by_reason) {
    const std::vector<PlanRow> rows = plan_rows(modules);
    const bool each = all || rows.size() <= kFew;
    for (const PlanRow& row : std::span(rows).first(each ? rows.size() : 1)) {
      const std::size_t more = modules.size() - row.modules.size();
      print_fact("in float", "{} {}{} ({})", row.path, str(row.modules.front()->shape),
                 each ? "" : fmt::format(" and {} more", more), reason);
    }
  }
}

std::string stored_name(const StoredAs& stored) { return stored ? stored->name() : "float"; }

static void print_modules(const QuantizationPlan& plan) {
  std::vector<const PlannedModule*> shown;
  for (const PlannedModule& m : plan.modules) {
    if (m.stored || !m.reason.empty()) shown.push_back(&m);
  }
  for (const PlanRow& row : plan_rows(shown)) {
    const PlannedModule& m = *row.modules.front();
    fmt::print("{:<56} {:<18} {}\n", row.path, str(m.shape), stored_name(m.stored));
  }
}

// A line for each format that others could not have.
static void print_replaced(const QuantizationPlan& plan) {
  std::map<std::string, std::vector<const PlannedModule*>> by_format;
  for (const PlannedModule& m : plan.modules) {
    if (m.instead_of && m.instead_of->is_blocks())
      by_format[fmt::format("{:<12} instead of {}", stored_name(m.stored), m.instead_of->name())].push_back(
          &m);
  }
  for (const auto& [what, modules] : by_format) {
    const PlannedModule& m = *modules.front();
    const std::string more = modules.size() > 1 ? fmt::format(" and {} more", modules.size() - 1) : "";
    print_words(fmt::format("{}: {}{} (rows of {} are no multiple of {})", what, m.path, more, m.shape.cols(),
                            m.instead_of->unit()),
                13);
  }
}

// A line for each of several formats.
static void print_formats(const QuantizationPlan& plan) {
  std::map<std::string, std::vector<std::string>> by_format;
  for (const PlannedModule& m : plan.modules) {
    if (m.stored) by_format[stored_name(m.stored)].push_back(m.path);
  }
  if (by_format.size() < 2) return;
  for (const auto& [format, paths] : by_format) {
    const std::string more = paths.size() > 1 ? fmt::format(" and {} more", paths.size() - 1) : "";
    print_fact(format, "{}{}", paths[0], more);
  }
}

StorageSize written_size(const OpenedModel& opened, const QuantizationPlan& plan, const GgufPlan* gguf) {
  StorageSize size = storage_size(*opened.source, plan, model_dtype(*opened.source));
  if (!gguf) return size;
  size.bytes = gguf->tensor_bytes();
  return size;
}

void print_types(const QuantizationPlan& plan, const GgufPlan& gguf) {
  std::string types;
  for (const auto& [type, count] : gguf.types())
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", gguf_type_info(type).name, count);
  print_fact("types", "{}", types);
  std::map<int, GgufType> wider;  // by bits
  for (const PlannedModule& m : plan.modules) {
    const int bits = m.stored && !m.stored->is_blocks() ? m.stored->bits : 0;
    if (bits == 2 || bits == 3 || bits == 6) wider.emplace(bits, gguf_type_of(*m.stored));
  }
  for (const auto& [bits, type] : wider)
    print_fact(fmt::format("{} bits", bits), "stored as {}, which takes the room of {}",
               gguf_type_info(type).name, bits < 4 ? 4 : 8);
}

void print_loss(const GgufLoss& loss) {
  if (loss.rounded_matrices > 0) {
    print_fact("rounded", "{} of the matrices again: {} has no biases, and theirs are not centred",
               loss.rounded_matrices, gguf_type_info(GgufType::q8_0).name);
  }
  if (loss.inexact > 0) {
    print_fact("f16", "does not hold {} of {} scales and biases, by up to {:.2g} of their value",
               loss.inexact, loss.scales, loss.largest);
  }
}

// What of the size goes where; of a file of GGUF's types they say it.
static void print_parts(const ModelSource& source, const QuantizationPlan& plan) {
  const DType dtype = model_dtype(source);
  const auto size_of_those = [&](const auto& wanted) {
    QuantizationPlan part = plan;
    part.others.clear();
    std::erase_if(part.modules, [&](const PlannedModule& m) { return !wanted(m); });
    return storage_size(source, part, dtype);
  };
  const StorageSize stored = size_of_those([](const PlannedModule& m) { return m.stored.has_value(); });
  const StorageSize embeddings =
      size_of_those([](const PlannedModule& m) { return m.kind == TensorKind::embedding; });
  const StorageSize head = size_of_those([](const PlannedModule& m) { return m.path == "lm_head"; });
  const StorageSize layers =
      size_of_those([](const PlannedModule& m) { return layer_of(m.path).has_value(); });
  const auto all = static_cast<double>(storage_size(source, plan, dtype).bytes);
  print_fact("bits", "embeddings {:.3f}, {}layers {:.3f}; {:.1f} % of the bytes in float",
             embeddings.bits_per_weight(),
             head.weights > 0 ? fmt::format("output layer {:.3f}, ", head.bits_per_weight()) : "",
             layers.bits_per_weight(), 100.0 * (1.0 - static_cast<double>(stored.bytes) / all));
}

void print_plan(const OpenedModel& opened, const QuantizationPlan& plan, const GgufPlan* gguf, bool all) {
  const std::int64_t quantized = std::count_if(plan.modules.begin(), plan.modules.end(),
                                               [](const PlannedModule& m) { return m.stored.has_value(); });
  if (all) print_modules(plan);
  for (const std::string& name : plan.left_out) {
    print_fact("left out", "{} (the model has no such tensor)", printable(name));
  }
  if (!all) print_formats(plan);
  print_replaced(plan);
  print_skipped(plan, all);
  if (gguf) print_types(plan, *gguf);
  const StorageSize size = written_size(opened, plan, gguf);
  print_fact("quantized", "{}, {}, {:.3f} bits per weight", counted(quantized, "module"),
             format_bytes(static_cast<double>(size.bytes)), size.bits_per_weight());
  if (!gguf) print_parts(*opened.source, plan);
}

}  // namespace mixtape::cli
