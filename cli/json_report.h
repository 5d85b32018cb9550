// The words that every --json and mixtape.json share: docs/json.md has the names, docs/json.schema.json all of them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "mixtape/calib/data.h"
#include "mixtape/calib/evaluation.h"
#include "mixtape/calib/trainer.h"
#include "mixtape/io/model_config.h"
#include "mixtape/quant/quantized_model.h"

namespace mixtape::cli {

// What each begins with: "mixtape", the version and commit, and "command".
nlohmann::json report_head(const std::string& command);

// {"value", "error"}, the standard error.
nlohmann::json to_json(Estimate e);
nlohmann::json to_json(const KlStatistics& kl);
// Of a model on text: "result", "initial".
nlohmann::json to_json(const Evaluation& e);
// {"rows", "positions", "fingerprint"}, which follows from the tokens alone.
nlohmann::json to_json(std::span<const TokenRow> rows);
// Steps, losses and validations; `seconds` and what follows from it only with `times`.
nlohmann::json to_json(const TrainReport& report, bool times);

// {"path", "type"}
nlohmann::json model_json(const std::string& path, const ModelConfig& config);
// {"bytes", "weights", "bits_per_weight"}
nlohmann::json size_json(double bytes, std::int64_t weights);
nlohmann::json size_json(const StorageSize& size);
// How many modules have each format.
nlohmann::json formats_json(const QuantizationPlan& plan);

}  // namespace mixtape::cli
