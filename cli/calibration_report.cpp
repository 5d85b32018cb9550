#include "cli/calibration_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/evaluation_table.h"
#include "cli/progress.h"
#include "cli/quote.h"
#include "mixtape/core/resident_memory.h"

namespace mixtape::cli {
namespace {

constexpr int kHint = 2;  // standard errors; less may well be chance

void print_row(const char* name, const Evaluation& e) {
  fmt::print("{:<16}{:>18}{:>21}{:>12.5f}{:>10.4f}{:>17}\n", name,
             with_error(e.perplexity, e.perplexity_error, 3), with_error(e.kl->mean, e.kl->mean_error, 5),
             e.kl->median, e.kl->p99, with_error(100.0 * e.top1_agreement, 100.0 * e.top1_error, 2) + " %");
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

double tokens_per_second(const TrainReport& t) {
  return t.seconds > 0.0 ? static_cast<double>(t.tokens_seen) / t.seconds : 0.0;
}

// Nothing of a run that did not train.
std::string training_summary(const TrainReport& t, bool keeps_best) {
  if (t.steps_done == 0) return "";
  return fmt::format("{} steps, {}; {:.0f} tokens/s; ", t.steps_done,
                     keeps_best ? fmt::format("best at {}", t.best_step) : "last state kept",
                     tokens_per_second(t));
}

void add_figures(nlohmann::json& json, const std::string& name, const Evaluation& e) {
  json["kl_" + name] = e.kl->mean;
  json["kl_" + name + "_statistics"] = figures(*e.kl);
  json["ppl_" + name] = e.perplexity;
  json["ppl_" + name + "_error"] = e.perplexity_error;
  json["top1_" + name] = e.top1_agreement;
  json["top1_" + name + "_error"] = e.top1_error;
}

nlohmann::json stages(const CalibrationReport& report) {
  nlohmann::json all = nlohmann::json::array();
  for (const StageReport& s : report.stages) {
    nlohmann::json stage = {
        {"method", s.method}, {"seconds", s.seconds}, {"kept", s.kept}, {"notes", s.notes}};
    if (s.kl) {
      stage["kl"] = s.kl->mean;
      stage["kl_error"] = s.kl->mean_error;
    }
    if (s.change) stage["change"] = {{"value", s.change->value}, {"error", s.change->error}};
    all.push_back(stage);
  }
  return all;
}

}  // namespace

void print_stages(const CalibrationReport& report) {
  fmt::print("\n{:<24}{:>8}{:>18}{:>19}\n", "stage (validation rows)", "seconds", "KL mean",
             "change, paired");
  for (const StageReport& s : report.stages) {
    fmt::print("{:<24}{:>8.1f}{:>18}{:>19}{}\n", s.method, s.seconds,
               s.kl ? with_error(s.kl->mean, s.kl->mean_error, 5) : "",
               s.change ? with_error(s.change->value, s.change->error, 5) : "", s.kept ? "" : "  not kept");
    for (const std::string& note : s.notes) fmt::print("  {}\n", note);
  }
  for (const StageReport& s : report.stages) {
    if (s.change && std::abs(s.change->value) < kHint * s.change->error)
      fmt::print(
          "undecided    {}: its change is within {} standard errors; more --validation-rows would tell\n",
          s.method, kHint);
  }
}

void print_table(const CalibrationReport& r, double bits_per_weight, bool keeps_best) {
  const TrainReport& t = r.training;
  fmt::print("\n{:<16}{:>18}{:>21}{:>12}{:>10}{:>17}\n", "", "ppl", "KL mean", "KL median", "KL p99",
             "same top 1");
  fmt::print("{:<16}{:>18}\n", "teacher",
             with_error(r.initial.teacher_perplexity, r.initial.teacher_perplexity_error, 3));
  print_row("plain rounding", r.initial);
  if (r.result) {
    print_row("calibrated", *r.result);
    const KlCut cut = kl_cut(r.initial, *r.result);
    fmt::print("KL cut by {:.1f} % (+-{:.1f}, paired); ", 100.0 * cut.share, 100.0 * cut.error);
  }
  fmt::print("{:.3f} bits per weight; {}peak {}\n", bits_per_weight, training_summary(t, keeps_best),
             format_bytes(static_cast<double>(peak_resident_bytes())));
}

bool improved(const CalibrationReport& r) {
  if (is_initial_fit(r)) return false;
  return !r.result || r.result->kl->mean < r.initial.kl->mean;
}

bool is_initial_fit(const CalibrationReport& r) {
  return std::none_of(r.stages.begin() + 1, r.stages.end(), [](const StageReport& s) { return s.kept; });
}

void print_verdict(const CalibrationReport& r) {
  if (is_initial_fit(r)) {
    fmt::print("no state was better than plain rounding; plain rounding was written\n");
  } else if (!improved(r)) {
    fmt::print("the result is not better than plain rounding on the report rows: a smaller --lr may help\n");
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
  fmt::print("experts      {} in {} layers, which saw {} to {} tokens each\n", tokens.size(), layers.size(),
             *least, *most);
  const std::vector<std::string> unseen = unseen_experts(report);
  if (unseen.empty()) return;
  fmt::print("unseen       {} experts saw no token and keep their rounded weights: {}{}\n", unseen.size(),
             unseen[0], unseen.size() > 1 ? ", ... (the report of --json names all)" : "");
}

nlohmann::json figures(const CalibrationReport& r) {
  nlohmann::json json = {{"ppl_teacher", r.initial.teacher_perplexity},
                         {"steps", r.training.steps_done},
                         {"best_step", r.training.best_step},
                         {"learning_rate", r.training.learning_rate},
                         {"interrupted", r.stopped_early},
                         {"diverged", r.training.diverged}};
  add_figures(json, "rtn", r.initial);
  if (!r.result) return json;
  add_figures(json, "result", *r.result);
  const KlCut cut = kl_cut(r.initial, *r.result);
  json["kl_cut"] = cut.share;
  json["kl_cut_error"] = cut.error;
  return json;
}

nlohmann::json course(const CalibrationReport& r) {
  const TrainReport& t = r.training;
  nlohmann::json curve = nlohmann::json::array();
  for (const ValidationPoint& p : t.validation) curve.push_back({{"step", p.step}, {"loss", p.loss}});
  nlohmann::json experts = nlohmann::json::object();
  for (const auto& [layer, seen] : t.expert_tokens) experts[std::to_string(layer)] = seen;
  return {{"stages", stages(r)},      {"tokens_per_second", tokens_per_second(t)},
          {"seconds", t.seconds},     {"peak_bytes", peak_resident_bytes()},
          {"validation", curve},      {"losses", t.losses},
          {"expert_tokens", experts}, {"unseen_experts", unseen_experts(t)}};
}

}  // namespace mixtape::cli
