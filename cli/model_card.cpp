#include "cli/model_card.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cli/quote.h"
#include "cli/version.h"
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

std::string table_row(const nlohmann::json& record, const char* title, const std::string& suffix) {
  return fmt::format("| {} | {:.3f} | {:.5f} | {:.1f} % |\n", title, record.at("ppl_" + suffix).get<double>(),
                     record.at("kl_" + suffix).get<double>(),
                     100.0 * record.at("top1_" + suffix).get<double>());
}

// Empty where nothing was measured.
std::string table(const nlohmann::json& record) {
  if (!record.contains("kl_rtn")) return "";
  std::string text = "| | perplexity | KL to the original | same top token |\n|---|---|---|---|\n";
  text += fmt::format("| original | {:.3f} | | |\n", record.at("ppl_teacher").get<double>());
  text += table_row(record, "plain rounding", "rtn");
  text += record.contains("kl_result") ? table_row(record, "calibrated", "result")
                                       : "| calibrated | not measured: the run was stopped | | |\n";
  return text + fmt::format("\nMeans over {} held-out positions, full vocabulary, temperature 1.\n\n",
                            record.at("report_tokens").get<std::int64_t>());
}

std::string how(const nlohmann::json& record) {
  if (!record.contains("steps")) return "rounded";
  std::string stages;
  for (const nlohmann::json& stage : record.value("stages", nlohmann::json::array())) {
    if (stage.at("kept").get<bool>())
      stages += (stages.empty() ? "" : ", ") + stage.at("method").get<std::string>();
  }
  if (!stages.empty()) stages += "; ";
  const std::int64_t steps = record.at("steps").get<std::int64_t>();
  const std::string best =
      record.value("interrupted", false)
          ? fmt::format(", stopped: the state of step {}", record.value("best_step", std::int64_t{0}))
          : "";
  return fmt::format("calibrated against the original ({}{} steps of training{})", stages, steps, best);
}

std::string widths(const nlohmann::json& record) {
  if (!record.contains("bits") || record.contains("bits_for")) return "mixed bits";
  return fmt::format("{} bits in groups of {}", record.at("bits").get<int>(),
                     record.at("group_size").get<int>());
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
      printable(name), printable(last_name(record.at("model"))), widths(record),
      record.at("bits_per_weight").get<double>(), how(record), record.at("mixtape").get<std::string>(),
      table(record), shell_word(name));
}

std::string trained_readme(const std::string& name, const nlohmann::json& record) {
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
      printable(name), record.at("model_type").get<std::string>(), record.at("weights").get<std::int64_t>(),
      record.at("train_rows").get<std::int64_t>(), record.at("mixtape").get<std::string>(),
      record.at("best_step").get<std::int64_t>(), record.at("steps").get<std::int64_t>(),
      record.at("batch").get<std::int64_t>(), record.at("length").get<std::int64_t>(), shell_word(name));
}

}  // namespace

std::string version_record() { return fmt::format("{} ({})", version(), commit()); }

nlohmann::json model_record(const std::string& command, const ModelOptions& model,
                            const QuantizeOptions& quantize, double bits_per_weight) {
  nlohmann::json json = {{"mixtape", version_record()},
                         {"command", command},
                         {"model", model.path},
                         {"rounding", quantize.mode},
                         {"smaller_groups", quantize.smaller_groups},
                         {"quantize_routers", quantize.quantize_routers},
                         {"bits_per_weight", bits_per_weight}};
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
