// An evaluation's figures, as lines and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "mixtape/calib/evaluation.h"

namespace mixtape::cli {

// All figures, one a line, under `title` unless it is empty.
void print_figures(const std::string& title, const Evaluation& e);

// "0.12345 +-0.00012"
std::string with_error(double value, double error, int digits);

nlohmann::json figures(const Evaluation& e);
nlohmann::json figures(const KlStatistics& kl);

}  // namespace mixtape::cli
