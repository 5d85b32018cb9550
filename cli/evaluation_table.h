// An evaluation's figures as lines.
#pragma once

#include <string>

#include "mixtape/calib/evaluation.h"

namespace mixtape::cli {

// All figures, one a line, under `title` unless it is empty.
void print_figures(const std::string& title, const Evaluation& e);

// "0.12345 +-0.00012"
std::string with_error(double value, double error, int digits);
// The same with fewer digits for large ones.
std::string short_perplexity(double value, double error);

}  // namespace mixtape::cli
