#include "cli/evaluation_table.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace mixtape::cli {
namespace {

nlohmann::json pair(Estimate e) { return {{"value", e.value}, {"error", e.error}}; }

void print_percent(const char* name, Estimate e) {
  fmt::print("{:<17}{:.2f} % +- {:.2f}\n", name, 100.0 * e.value, 100.0 * e.error);
}

}  // namespace

std::string with_error(double value, double error, int digits) {
  return fmt::format("{:.{}f} +-{:.{}f}", value, digits, error, digits);
}

void print_figures(const std::string& title, const Evaluation& e) {
  if (!title.empty()) fmt::print("{}\n", title);
  fmt::print("positions        {}\n", e.positions);
  fmt::print("mean nll         {:.5f} +- {:.5f}\n", e.mean_nll, e.mean_nll_error);
  fmt::print("perplexity       {:.4f} +- {:.4f}\n", e.perplexity, e.perplexity_error);
  if (!e.kl) return;
  fmt::print("teacher          {:.4f} +- {:.4f}\n", e.teacher_perplexity, e.teacher_perplexity_error);
  fmt::print("model / teacher  {:.5f} +- {:.5f}, paired; correlation of nll {:.4f}\n",
             e.perplexity_ratio.value, e.perplexity_ratio.error, e.nll_correlation);
  fmt::print("KL mean          {:.6f} +- {:.6f}\n", e.kl->mean, e.kl->mean_error);
  fmt::print("KL median        {:.6f}\n", e.kl->median);
  fmt::print("KL p1, p5        {:.6f}  {:.6f}\n", e.kl->p1, e.kl->p5);
  fmt::print("KL p95           {:.6f}\n", e.kl->p95);
  fmt::print("KL p99, p99.9    {:.6f}  {:.6f}\n", e.kl->p99, e.kl->p999);
  fmt::print("KL max           {:.6f}\n", e.kl->max);
  print_percent("same top 1", {e.top1_agreement, e.top1_error});
  print_percent("right token", e.mean_change);
  print_percent("right token RMS", e.rms_change);
}

nlohmann::json figures(const KlStatistics& kl) {
  return {{"mean", kl.mean},     {"mean_error", kl.mean_error},
          {"median", kl.median}, {"p1", kl.p1},
          {"p5", kl.p5},         {"p95", kl.p95},
          {"p99", kl.p99},       {"p999", kl.p999},
          {"max", kl.max}};
}

nlohmann::json figures(const Evaluation& e) {
  nlohmann::json json = {{"positions", e.positions}, {"mean_nll", e.mean_nll}, {"ppl", e.perplexity}};
  json["mean_nll_error"] = e.mean_nll_error;
  json["ppl_error"] = e.perplexity_error;
  if (!e.kl) return json;
  json["ppl_teacher"] = e.teacher_perplexity;
  json["ppl_teacher_error"] = e.teacher_perplexity_error;
  json["ppl_ratio"] = pair(e.perplexity_ratio);
  json["nll_correlation"] = e.nll_correlation;
  json["top1"] = e.top1_agreement;
  json["top1_error"] = e.top1_error;
  json["probability_change"] = pair(e.mean_change);
  json["probability_change_rms"] = pair(e.rms_change);
  json["kl"] = figures(*e.kl);
  return json;
}

}  // namespace mixtape::cli
