#include "cli/calibration_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "cli/evaluation_table.h"
#include "cli/json_report.h"
#include "cli/progress.h"
#include "cli/quote.h"
#include "cli/terminal.h"
#include "cli/text_table.h"
#include "mixtape/core/counted.h"
#include "mixtape/core/resident_memory.h"

namespace mixtape::cli {
namespace {

// Of buffers; nothing where the device works on the host's memory.
std::optional<std::size_t> card_peak_bytes(const Device& device) {
  if (device.caps().has_host_memory) return std::nullopt;
  return device.memory_stats().peak_bytes;
}

constexpr int kHint = 2;  // standard errors; less may well be chance
// Of a model on text that it was made for; far more says that the text isn't what it seems.
constexpr double kOddPerplexity = 100.0;

// 79 columns, as a terminal has 80.
TextTable figures_table() {
  return TextTable(
      {{"", 15}, {"ppl", 15}, {"KL mean", 18}, {"KL median", 10}, {"KL p99", 8}, {"same top 1 %", 13}});
}

void print_row(const TextTable& table, const char* name, const Evaluation& e) {
  table.print_row({name, short_perplexity(e.perplexity, e.perplexity_error),
                   with_error(e.kl->mean, e.kl->mean_error, 5), fmt::format("{:.5f}", e.kl->median),
                   fmt::format("{:.4f}", e.kl->p99),
                   with_error(100.0 * e.top1_agreement, 100.0 * e.top1_error, 2)});
}

std::vector<std::string> unseen_experts(const TrainReport& report) {
  std::vector<std::string> names;
  for (const auto& [layer, seen] : report.expert_tokens) {
    for (std::size_t e = 0; e < seen.size(); ++e) {
      if (seen[e] == 0) names.push_back(str("model.layers.", layer, ".mlp.experts.", e));
    }
  }
  return names;
}

// The first few, each on a line: the experts of a large model fill pages.
void print_notes(const std::vector<std::string>& notes) {
  constexpr std::size_t kMost = 3, kColumns = 98;
  for (const std::string& note : std::span(notes).first(std::min(kMost, notes.size())))
    print_words("  " + (note.size() > kColumns ? note.substr(0, kColumns - 4) + " ..." : note), 2);
  if (notes.size() > kMost)
    print_words(fmt::format("  and {} more like these (the report of --json has all)", notes.size() - kMost),
                2);
}

// Nothing of a run that did not train.
std::string training_summary(const TrainReport& t, bool keeps_best) {
  if (t.steps_done == 0) return "";
  const double rate = t.seconds > 0.0 ? static_cast<double>(t.tokens_seen) / t.seconds : 0.0;
  return fmt::format("{}, {}; {:.0f} tokens/s; ", counted(t.steps_done, "step"),
                     keeps_best ? fmt::format("best at {}", t.best_step) : "last state kept", rate);
}

nlohmann::json stages(const CalibrationReport& report) {
  nlohmann::json all = nlohmann::json::array();
  for (const StageReport& s : report.stages) {
    nlohmann::json stage = {
        {"method", s.method}, {"seconds", s.seconds}, {"kept", s.kept}, {"notes", s.notes}};
    if (s.kl) stage["kl"] = to_json(*s.kl);
    if (s.change) stage["change"] = to_json(*s.change);
    all.push_back(stage);
  }
  return all;
}

}  // namespace

void print_stages(const CalibrationReport& report) {
  const TextTable table(
      {{"stage (validation rows)", 24}, {"seconds", 8}, {"KL mean", 18}, {"change, paired", 19}, {"", 10}});
  fmt::print("\n");
  table.print_header();
  for (const StageReport& s : report.stages) {
    table.print_row(
        {s.method, fmt::format("{:.1f}", s.seconds), s.kl ? with_error(s.kl->mean, s.kl->mean_error, 5) : "",
         s.change ? with_error(s.change->value, s.change->error, 5) : "", s.kept ? "" : "not kept"});
    print_notes(s.notes);
  }
  for (const StageReport& s : report.stages) {
    if (s.change && std::abs(s.change->value) < kHint * s.change->error)
      print_fact("undecided",
                 "{}: its change is within {} standard errors; more --validation-rows would tell", s.method,
                 kHint);
  }
}

void print_table(const CalibrationReport& r, double bits_per_weight, bool keeps_best, const Device& device) {
  const TrainReport& t = r.training;
  const TextTable table = figures_table();
  fmt::print("\n");
  table.print_header();
  table.print_row({"teacher",
                   short_perplexity(r.initial.teacher_perplexity, r.initial.teacher_perplexity_error), "", "",
                   "", ""});
  print_row(table, "plain rounding", r.initial);
  std::string cut_text;
  if (r.result) {
    print_row(table, "calibrated", *r.result);
    const KlCut cut = kl_cut(r.initial, *r.result);
    cut_text = fmt::format("KL cut by {:.1f} % (+-{:.1f}, paired); ", 100.0 * cut.share, 100.0 * cut.error);
  }
  const auto bytes = [](std::size_t count) { return format_bytes(static_cast<double>(count)); };
  const std::optional<std::size_t> on_card = card_peak_bytes(device);
  print_words(fmt::format("{}{:.3f} bits per weight", cut_text, bits_per_weight));
  print_words(fmt::format("{}peak {}{}", training_summary(t, keeps_best), bytes(peak_resident_bytes()),
                          on_card ? fmt::format(", {} on the card", bytes(*on_card)) : ""));
}

bool improved(const CalibrationReport& r) {
  if (is_initial_fit(r)) return false;
  return !r.result || r.result->kl->mean < r.initial.kl->mean;
}

bool is_initial_fit(const CalibrationReport& r) {
  return std::none_of(r.stages.begin() + 1, r.stages.end(), [](const StageReport& s) { return s.kept; });
}

void print_interrupted(const TrainReport& t, const std::string& out) {
  print_words(fmt::format("interrupted after {}; wrote the best state so far, of step {}, to {}",
                          counted(t.steps_done, "step"), t.best_step, printable(out)));
}

void print_verdict(const CalibrationReport& r) {
  if (is_initial_fit(r)) {
    print_words("no state was better than plain rounding; plain rounding was written");
  } else if (!improved(r)) {
    print_words(fmt::format("the result is not better than plain rounding on the report rows: {} may help",
                            r.training.steps_done > 0 ? "more rows, or a smaller --lr," : "more rows"));
  }
  if (r.initial.teacher_perplexity > kOddPerplexity) {
    warn(fmt::format("the model's own perplexity on this text is {:.0f}: is it text that the model knows?",
                     r.initial.teacher_perplexity));
  }
}

void print_next(const std::string& out, bool is_gguf) {
  const std::string word = shell_word(out);
  fmt::print("try          mixtape generate -m {} -p 'Once upon a time'\n", word);
  if (is_gguf) {
    fmt::print("             llama-cli -m {} -p 'Once upon a time'\n", word);
  } else {
    fmt::print("             mlx_lm.generate --model {} --prompt 'Once upon a time'\n", word);
  }
}

void print_experts(const TrainReport& report) {
  const auto& layers = report.expert_tokens;
  if (layers.empty()) return;
  std::vector<std::int64_t> tokens;
  for (const auto& [layer, seen] : layers) tokens.insert(tokens.end(), seen.begin(), seen.end());
  const auto [least, most] = std::minmax_element(tokens.begin(), tokens.end());
  print_fact("experts", "{} in {}, which saw {} to {} tokens each", tokens.size(),
             counted(layers.size(), "layer"), *least, *most);
  const std::vector<std::string> unseen = unseen_experts(report);
  if (unseen.empty()) return;
  print_fact("unseen", "{} saw no token and keep their rounded weights: {}{}", unseen.size(), unseen[0],
             unseen.size() > 1 ? ", ... (--json has all)" : "");
}

nlohmann::json figures(const CalibrationReport& r) {
  nlohmann::json json = {{"initial", to_json(r.initial)},
                         {"training", to_json(r.training, false)},
                         {"interrupted", r.stopped_early}};
  if (!r.result) return json;
  const KlCut cut = kl_cut(r.initial, *r.result);
  json.update({{"result", to_json(*r.result)}, {"kl_cut", to_json(Estimate{cut.share, cut.error})}});
  return json;
}

nlohmann::json course(const CalibrationReport& r, const Device& device) {
  nlohmann::json training = to_json(r.training, true), experts = nlohmann::json::object();
  for (const auto& [layer, seen] : r.training.expert_tokens) experts[std::to_string(layer)] = seen;
  training.update({{"expert_tokens", experts}, {"unseen_experts", unseen_experts(r.training)}});
  nlohmann::json json = {
      {"stages", stages(r)}, {"training", training}, {"peak_bytes", peak_resident_bytes()}};
  if (const auto on_card = card_peak_bytes(device)) json["device_peak_bytes"] = *on_card;
  return json;
}

}  // namespace mixtape::cli
