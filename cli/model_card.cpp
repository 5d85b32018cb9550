#include "cli/model_card.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cli/json_report.h"
#include "cli/quote.h"
#include "cli/version.h"
#include "mixtape/core/counted.h"
#include "mixtape/io/atomic_file.h"

namespace mixtape::cli {
namespace {

// The last part of a path, however it ends; "Qwen/Qwen3-0.6B" and what is no longer path stay as they are.
std::string last_name(const std::string& path) {
  const std::size_t end = path.find_last_not_of('/');
  if (end == path.npos) return path;
  const std::string trimmed = path.substr(0, end + 1);
  return trimmed.substr(trimmed.find_last_of('/') + 1);
}

std::string table_row(const char* title, const nlohmann::json& figures) {
  return fmt::format(
      "| {} | {:.3f} | {:.5f} | {:.1f} % |\n", title, figures.at("perplexity").at("value").get<double>(),
      figures.at("kl").at("mean").get<double>(), 100.0 * figures.at("top1").at("value").get<double>());
}

// Empty where nothing was measured.
std::string table(const nlohmann::json& record) {
  if (!record.contains("initial")) return "";
  const nlohmann::json& initial = record.at("initial");
  std::string text = "| | perplexity | KL to the original | same top token |\n|---|---|---|---|\n";
  text +=
      fmt::format("| original | {:.3f} | | |\n", initial.at("teacher_perplexity").at("value").get<double>());
  text += table_row("plain rounding", initial);
  text += record.contains("result") ? table_row("calibrated", record.at("result"))
                                    : "| calibrated | not measured: the run was stopped | | |\n";
  return text + fmt::format("\nMeans over {} held-out positions, full vocabulary, temperature 1.\n\n",
                            initial.at("positions").get<std::int64_t>());
}

std::string how(const nlohmann::json& record) {
  if (!record.contains("training")) return "rounded";
  const nlohmann::json& training = record.at("training");
  std::string stages;
  for (const nlohmann::json& stage : record.value("stages", nlohmann::json::array())) {
    if (stage.at("kept").get<bool>())
      stages += (stages.empty() ? "" : ", ") + stage.at("method").get<std::string>();
  }
  if (!stages.empty()) stages += "; ";
  const std::int64_t steps = training.at("steps").get<std::int64_t>();
  const std::string best =
      record.value("interrupted", false)
          ? fmt::format(", stopped: the state of step {}", training.at("best_step").get<std::int64_t>())
          : "";
  return fmt::format("calibrated against the original ({}{} of training{})", stages, counted(steps, "step"),
                     best);
}

std::string widths(const nlohmann::json& record) {
  const nlohmann::json& settings = record.at("settings");
  if (!settings.contains("bits") || settings.contains("bits_for")) return "mixed bits";
  return fmt::format("{} bits in groups of {}", settings.at("bits").get<int>(),
                     settings.at("group_size").get<int>());
}

std::string readme(const std::string& name, const nlohmann::json& record) {
  return fmt::format(
      "---\n"
      "library_name: mlx\n"
      "pipeline_tag: text-generation\n"
      "tags:\n"
      "- mlx\n"
      "---\n"
      "\n"
      "# {0}\n"
      "\n"
      "{1} at {2}, {3:.3f} bits per weight: {4}, by mixtape {5}.\n"
      "\n"
      "{6}"
      "```\n"
      "mlx_lm.generate --model {7} --prompt 'Once upon a time'\n"
      "mixtape generate --model {7} --prompt 'Once upon a time'\n"
      "```\n"
      "\n"
      "mixtape.json has every setting and figure.\n",
      printable(name), printable(last_name(record.at("model").at("path"))), widths(record),
      record.at("out").at("bits_per_weight").get<double>(), how(record), version_record(), table(record),
      shell_word(name));
}

std::string trained_readme(const std::string& name, const nlohmann::json& record) {
  const nlohmann::json &text = record.at("text"), &training = record.at("training");
  return fmt::format(
      "---\n"
      "pipeline_tag: text-generation\n"
      "---\n"
      "\n"
      "# {0}\n"
      "\n"
      "{1} of {2} weights, trained from nothing on {3} rows of text by mixtape {4}: best at step {5} of "
      "{6},\n"
      "{7} rows of {8} tokens each.\n"
      "\n"
      "```\n"
      "mixtape generate --model {9} --prompt 'Once upon a time'\n"
      "```\n"
      "\n"
      "mixtape.json has every setting.\n",
      printable(name), record.at("model").at("type").get<std::string>(),
      record.at("out").at("weights").get<std::int64_t>(), text.at("train").at("rows").get<std::int64_t>(),
      version_record(), training.at("best_step").get<std::int64_t>(),
      training.at("steps").get<std::int64_t>(), record.at("settings").at("batch").get<std::int64_t>(),
      text.at("length").get<std::int64_t>(), shell_word(name));
}

}  // namespace

std::string version_record() { return fmt::format("{} ({})", version(), commit()); }

nlohmann::json model_record(const std::string& command, const std::string& model, const ModelConfig& config,
                            const StorageSize& size, const QuantizationPlan& plan) {
  nlohmann::json json = report_head(command);
  json.update(
      {{"model", model_json(model, config)}, {"out", size_json(size)}, {"formats", formats_json(plan)}});
  return json;
}

nlohmann::json quantize_settings(const QuantizeOptions& quantize) {
  nlohmann::json json = {{"rounding", quantize.mode},
                         {"smaller_groups", quantize.smaller_groups},
                         {"quantize_routers", quantize.quantize_routers}};
  const BitBudget& budget = quantize.budget;
  if (budget.bits_per_weight > 0.0) json["bpw"] = budget.bits_per_weight;
  if (budget.size > 0) json["size"] = budget.size;
  if (!quantize.type.empty()) json["type"] = quantize.type;
  if (quantize.plan_file.empty() && quantize.type.empty() && !budget.is_set())
    json.update({{"bits", quantize.bits}, {"group_size", quantize.group_size}});
  if (!quantize.plan_file.empty()) json["plan"] = quantize.plan_file;
  if (!quantize.bits_for.empty()) json["bits_for"] = quantize.bits_for;
  return json;
}

void write_card(const std::filesystem::path& directory, const std::string& name,
                const nlohmann::json& record) {
  const auto replace = nlohmann::json::error_handler_t::replace;  // names of files may be no UTF-8
  write_file(directory / "mixtape.json", record.dump(2, ' ', false, replace) + "\n");
  const bool is_trained = record.at("command") == "train";
  write_file(directory / "README.md",
             is_trained ? trained_readme(last_name(name), record) : readme(last_name(name), record));
}

}  // namespace mixtape::cli
