#include "cli/evaluation_table.h"

#include <fmt/core.h>

#include "cli/text_table.h"

namespace mixtape::cli {
namespace {

void print_percent(const char* name, Estimate e) {
  fmt::print("{:<17}{:.2f} % +- {:.2f}\n", name, 100.0 * e.value, 100.0 * e.error);
}

}  // namespace

std::string with_error(double value, double error, int digits) {
  return fmt::format("{:.{}f} +-{:.{}f}", value, digits, error, digits);
}

std::string short_perplexity(double value, double error) {
  return with_error(value, error, value < 100.0 ? 3 : 1);
}

void print_figures(const std::string& title, const Evaluation& e) {
  if (!title.empty()) fmt::print("{}\n", title);
  fmt::print("positions        {}\n", e.positions);
  fmt::print("mean nll         {:.5f} +- {:.5f}\n", e.mean_nll, e.mean_nll_error);
  fmt::print("perplexity       {:.4f} +- {:.4f}\n", e.perplexity, e.perplexity_error);
  if (!e.kl) return;
  fmt::print("teacher          {:.4f} +- {:.4f}\n", e.teacher_perplexity, e.teacher_perplexity_error);
  print_words(fmt::format("model / teacher  {:.5f} +- {:.5f}, paired; correlation of nll {:.4f}",
                          e.perplexity_ratio.value, e.perplexity_ratio.error, e.nll_correlation),
              17);
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

}  // namespace mixtape::cli
