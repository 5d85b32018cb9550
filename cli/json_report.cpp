#include "cli/json_report.h"

#include <nlohmann/json.hpp>

#include "cli/quantize_options.h"
#include "cli/version.h"
#include "mixtape/calib/fingerprint.h"

namespace mixtape::cli {

nlohmann::json report_head(const std::string& command) {
  return {{"mixtape", {{"version", version()}, {"commit", commit()}}}, {"command", command}};
}

nlohmann::json to_json(Estimate e) { return {{"value", e.value}, {"error", e.error}}; }

nlohmann::json to_json(const KlStatistics& kl) {
  return {{"mean", kl.mean},     {"mean_error", kl.mean_error},
          {"median", kl.median}, {"p1", kl.p1},
          {"p5", kl.p5},         {"p95", kl.p95},
          {"p99", kl.p99},       {"p999", kl.p999},
          {"max", kl.max}};
}

nlohmann::json to_json(const Evaluation& e) {
  nlohmann::json json = {{"positions", e.positions},
                         {"nll", to_json(Estimate{e.mean_nll, e.mean_nll_error})},
                         {"perplexity", to_json(Estimate{e.perplexity, e.perplexity_error})}};
  if (!e.kl) return json;
  json["teacher_perplexity"] = to_json(Estimate{e.teacher_perplexity, e.teacher_perplexity_error});
  json["perplexity_ratio"] = to_json(e.perplexity_ratio);
  json["nll_correlation"] = e.nll_correlation;
  json["top1"] = to_json(Estimate{e.top1_agreement, e.top1_error});
  json["probability_change"] = to_json(e.mean_change);
  json["probability_change_rms"] = to_json(e.rms_change);
  json["kl"] = to_json(*e.kl);
  return json;
}

nlohmann::json to_json(std::span<const TokenRow> rows) {
  return {
      {"rows", rows.size()}, {"positions", count_positions(rows)}, {"fingerprint", rows_fingerprint(rows)}};
}

static double tokens_per_second(const TrainReport& t) {
  return t.seconds > 0.0 ? static_cast<double>(t.tokens_seen) / t.seconds : 0.0;
}

nlohmann::json to_json(const TrainReport& t, bool times) {
  nlohmann::json json = {{"steps", t.steps_done},
                         {"best_step", t.best_step},
                         {"learning_rate", t.learning_rate},
                         {"diverged", t.diverged}};
  if (!times) return json;
  nlohmann::json validation = nlohmann::json::array();
  for (const ValidationPoint& p : t.validation) validation.push_back({{"step", p.step}, {"loss", p.loss}});
  json.update({{"seconds", t.seconds},
               {"tokens_per_second", tokens_per_second(t)},
               {"losses", t.losses},
               {"validation", validation}});
  return json;
}

nlohmann::json model_json(const std::string& path, const ModelConfig& config) {
  return {{"path", path}, {"type", config.architecture->model_type}};
}

nlohmann::json size_json(double bytes, std::int64_t weights) {
  return {{"bytes", static_cast<std::int64_t>(bytes)},
          {"weights", weights},
          {"bits_per_weight", 8.0 * bytes / static_cast<double>(weights)}};
}

nlohmann::json size_json(const StorageSize& size) {
  return size_json(static_cast<double>(size.bytes), size.weights);
}

nlohmann::json formats_json(const QuantizationPlan& plan) {
  nlohmann::json json = nlohmann::json::object();
  for (const PlannedModule& m : plan.modules) {
    if (m.kind == TensorKind::vector) continue;
    const std::string name = stored_name(m.stored);
    json[name] = json.value(name, 0) + 1;
  }
  return json;
}

}  // namespace mixtape::cli
